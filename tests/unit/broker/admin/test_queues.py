"""Consume queues: entries and clean-up."""

import pytest

from rocketpy.broker.admin.queues import QueueAdmin
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_queues_query_returns_entries(kit: Kit) -> None:
    kit.store.fill("T", 0, 5)
    ext = {"topic": "T", "queueId": 0, "index": 3, "count": 10}
    found = loads(ask(kit.admin(QueueAdmin).query, ext).body)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 5)
    assert found["queueData"] == [
        {"eval": False, "physicOffset": at * 100, "physicSize": 100, "tagsCode": 7} for at in (3, 4)
    ]
    assert "subscriptionData" not in found


@pytest.mark.parametrize(("tags_code", "expected"), [(97, True), (7, False)])
def test_queues_query_evaluates_subscription(kit: Kit, tags_code: int, expected: bool) -> None:
    kit.store.queues["T", 0] = [(0, 100, tags_code, 1)]
    kit.add_consumer("G", "T")
    ext = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "G"}
    found = loads(ask(kit.admin(QueueAdmin).query, ext).body)
    assert found["queueData"][0]["eval"] is expected
    assert found["subscriptionData"]["topic"] == "T"


def test_queues_query_is_bounded(kit: Kit) -> None:
    kit.store.fill("T", 0, 3_000)
    ext = {"topic": "T", "queueId": 0, "index": 0, "count": (1 << 31) - 1}
    assert len(loads(ask(kit.admin(QueueAdmin).query, ext).body)["queueData"]) == 1_000


def test_queues_query_of_unknown_queue_is_refused(kit: Kit) -> None:
    ext = {"topic": "../T", "queueId": 3, "index": 0, "count": 1}
    response = ask(kit.admin(QueueAdmin).query, ext)
    assert (response.code, response.remark) == (1, "3@../T is not exist!")


def test_queues_cleanup_requests_call_store(kit: Kit) -> None:
    admin = kit.admin(QueueAdmin)
    kit.add_topic("T")
    kit.store.fill("T", 0, 1)
    kit.store.fill("Gone", 0, 1)
    assert ask(admin.clean_expired).code == 0
    assert ask(admin.delete_expired).code == 0
    assert kit.store.calls == ["clean_expired_consume_queues", "delete_expired_files"]
    assert ask(admin.clean_unused).code == 0
    assert kit.store.deleted == ["Gone"]
