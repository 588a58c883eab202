"""Wrong requests of consumers: send-back of unknown messages, different subscriptions."""

from typing import Any

import orjson

from rocketpy.proto.subscription import build_subscription
from tests.bad_input.kit import EventLog, World


def test_send_back_of_unknown_message_is_refused(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        sent = peer.send(b"x", "GivenBack")
        offset = int(sent.ext_fields["msgId"][16:], 16)
        good = {"group": "g", "offset": str(offset), "delayLevel": "0"}
        wrong: list[tuple[dict[str, str], int]] = [
            ({"offset": str(offset + 1)}, 1),
            ({"offset": str(1 << 40)}, 1),
            ({"offset": "-1"}, 1),
            ({"originTopic": "Another"}, 1),
            ({"group": "a/../b"}, 26),
            ({"group": ""}, 26),
            ({"delayLevel": "x"}, 1),
        ]
        for change, code in wrong:
            response = peer.call(36, {**good, **change})
            assert response.code == code, (change, response.remark)
            assert response.remark
        assert peer.call(36, {**good, "delayLevel": "99"}).code == 0, "the last level there is"


def test_members_that_subscribe_differently(world: World, log: EventLog) -> None:
    def heartbeat(client_id: str, tag: str) -> bytes:
        wanted: Any = build_subscription("Divided", tag, sub_version=1)
        group = {
            "groupName": "divided",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [orjson.loads(wanted.encode())],
        }
        return orjson.dumps({"clientID": client_id, "consumerDataSet": [group]})

    with world.staying_well(), world.peer() as one, world.peer() as two:
        assert one.call(34, {}, heartbeat("c1", "a")).code == 0
        assert two.call(34, {}, heartbeat("c2", "b")).code == 0, "as Apache answers"
        one.call(34, {}, heartbeat("c1", "a"))
    assert len(log.named("subscribe differently", "divided")) == 1
