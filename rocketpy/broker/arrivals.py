"""Who is told of a message that came: capabilities whose service sleeps, and then the pulls.

It is called for each message that is stored, so it costs no more than a look into a dictionary.
"""

from collections.abc import Iterable

from rocketpy.broker.feature import Feature
from rocketpy.broker.pop.waiters import Listener


def telling(features: Iterable[Feature], pulls: Listener) -> Listener:
    """Return what tells capabilities of messages in their topics, and pulls of all.

    Args:
        features: see `Feature.arrivals`.
        pulls: told of every message.
    """
    told = {topic: each for one in features for topic, each in one.arrivals.items()}

    def on_arrival(topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        if topic in told:  # first: no fault of another's may keep its service asleep
            told[topic](queue_id)
        pulls(topic, queue_id, next_offset, tags_code)

    return on_arrival
