"""The heartbeat's body: who this client is and what its groups subscribe to.

Source: HeartbeatData, ProducerData, ConsumerData (5.4.0).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from rocketpy.proto.subscription import SubscriptionData


def subscription_json(subscription: SubscriptionData) -> dict[str, Any]:
    """Return one subscription under its wire names."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.code_set),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": sorted(subscription.tags_set),
        "topic": subscription.topic,
    }


def consumer_data(
    group: str,
    subscriptions: Iterable[SubscriptionData],
    *,
    broadcast: bool,
    active: bool,
    consume_from: str,
) -> dict[str, Any]:
    """Return one group's part of the heartbeat.

    Args:
        group: its name.
        subscriptions: what it wants.
        broadcast: every member gets every message.
        active: a pull consumer.
        consume_from: ``CONSUME_FROM_LAST_OFFSET`` and its sisters.
    """
    return {
        "consumeFromWhere": consume_from,
        "consumeType": "CONSUME_ACTIVELY" if active else "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "BROADCASTING" if broadcast else "CLUSTERING",
        "subscriptionDataSet": [subscription_json(entry) for entry in subscriptions],
        "unitMode": False,
    }


def encode_heartbeat(
    client_id: str, producer_groups: Iterable[str], consumers: Sequence[dict[str, Any]]
) -> bytes:
    """Return the body of HEART_BEAT."""
    return orjson.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": list(consumers),
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": group} for group in sorted(producer_groups)],
            "withoutSub": False,
        }
    )
