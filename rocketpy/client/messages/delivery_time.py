"""Messages that are to be delivered later, as their sender says it.

Brokers before 5.0 know delay levels only, and deliver a message with a moment at once. So what a
broker is comes first: a message with a moment goes to such a broker with the nearest level that is
not shorter, of the levels that brokers have by default.

Source: MessageConst, MessageStoreConfig.messageDelayLevel (5.4.0).
"""

import math
from typing import Final, NamedTuple

from rocketpy.client.options.durations import Duration, Moment, moment_ms, to_s
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    properties_text,
)

V5_0_0: Final = 413
"""The first version whose brokers deliver at any moment."""
DELAYS: Final = ("delay", "deliver_at", "delay_level")
LEVELS_MS: Final = (
    1_000, 5_000, 10_000, 30_000, *(60_000 * minutes for minutes in range(1, 11)),
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
_MOST_S: Final = 1e12


class DeliveryTime(NamedTuple):
    """Delivery time of a message.

    Attributes:
        delay_ms: so much later than it is sent; or
        deliver_ms: at this wall time, ms.
    """

    delay_ms: int | None = None
    deliver_ms: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        """For brokers that know moments."""
        if self.delay_ms is not None:
            return {PROPERTY_TIMER_DELAY_MS: str(self.delay_ms)}
        return {PROPERTY_TIMER_DELIVER_MS: str(self.deliver_ms)}

    def as_delay_level(self, text: str, now_ms: int) -> str:
        """Return a message's properties with a level in the place of its moment.

        Args:
            text: its properties.
            now_ms: wall time.

        Raises:
            IllegalMessageError: it is further away than the last level.
        """
        delay_ms = self.delay_ms if self.deliver_ms is None else self.deliver_ms - now_ms
        assert delay_ms is not None
        level = ""
        if delay_ms > 0:
            found = [n for n, level_ms in enumerate(LEVELS_MS, 1) if level_ms >= delay_ms]
            if not found:
                raise IllegalMessageError(
                    f"this broker is older than 5.0 and has no delay of {delay_ms} ms: "
                    "the longest is two hours; use delay_level"
                )
            level = properties_text({PROPERTY_DELAY_TIME_LEVEL: str(found[0])})
        return text.replace(properties_text(self.properties), level)


def delivery_time_of(
    delay: Duration | None, deliver_at: Moment | None, level: int
) -> DeliveryTime | None:
    """Return the moment that a sender asks for, None when it asks for none.

    Args:
        delay: no sooner than after this time.
        deliver_at: no sooner than at this time.
        level: a delay level, 0 for none.

    Raises:
        IllegalMessageError: two of them are given, or one that is no time.
    """
    values = (delay, deliver_at is not None, level)
    given = [name for name, value in zip(DELAYS, values, strict=True) if value]
    if len(given) > 1:
        raise IllegalMessageError(f"give one of {' and '.join(given)}")
    if deliver_at is not None:
        try:
            return DeliveryTime(deliver_ms=moment_ms(deliver_at))
        except ValueError as error:
            raise IllegalMessageError(f"deliver_at: {error}") from None
    if not delay:
        return None
    seconds = to_s(delay)
    if not 0 <= seconds < _MOST_S:
        raise IllegalMessageError(f"a delay of {seconds} s cannot be")
    return DeliveryTime(delay_ms=math.ceil(round(seconds * 1_000, 3)))


def level_property(level: int) -> dict[str, str]:
    """Return the property of a delay level, nothing for 0.

    Raises:
        IllegalMessageError: there is no such level.
    """
    if not level:
        return {}
    if level not in range(1, len(LEVELS_MS) + 1):
        raise IllegalMessageError(f"delay level {level} is not in 1..{len(LEVELS_MS)}")
    return {PROPERTY_DELAY_TIME_LEVEL: str(int(level))}
