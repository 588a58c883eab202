"""Prefetching pulls of a range: order, completeness, bounds and retries."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    FlowControlError,
    NoPermissionError,
    RequestTimeoutError,
    SystemFaultError,
)
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.source.fetch import FAULTS, Pulled, PullSettings, RangeFetcher
from tests.unit.spark.queue_broker import MASTER, SLAVE, QueueBroker


class Time:
    """Clock that advances when a caller sleeps."""

    now_ms = 0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def fetch(
    broker: QueueBroker,
    start: int,
    end: int,
    *,
    addresses: Mapping[int, str] | None = None,
    located: Mapping[int, str] | None = None,
    **changes: Any,
) -> list[Pulled]:
    """Return all results of a fetcher."""
    values = {"group": "g", "batch": 1024, "max_bytes": 1 << 20, "prefetch": 4, "timeout_ms": 9_000}

    async def run() -> list[Pulled]:
        async def locate(_: QueueRange) -> Mapping[int, str]:
            return located if located is not None else {0: MASTER}

        time = Time()
        fetcher = RangeFetcher(
            broker,
            QueueRange("T", "broker-a", 0, start, end),
            PullSettings(**{**values, **changes}),
            addresses={0: MASTER} if addresses is None else addresses,
            locate=locate,
            clock=time,
            sleep=time.sleep,
        )
        found = []
        try:
            while (pulled := await fetcher.next()) is not None:
                found.append(pulled)
        finally:
            await fetcher.close()
        return found

    return asyncio.run(run())


def offsets(found: list[Pulled]) -> list[int]:
    return [
        message.queue_offset
        for each in found
        for message in decode_messages(each.body)
        if each.start <= message.queue_offset < each.end
    ]


def covers(found: list[Pulled], start: int, end: int) -> bool:
    """Return whether pieces cover the range from start to end, in order."""
    bounds = [start, *(each.end for each in found)]
    return bounds[-1] == end and [each.start for each in found] == bounds[:-1]


@given(
    st.integers(1, 700),
    st.integers(1, 40),
    st.integers(1, 64),
    st.integers(1, 9),
    st.integers(1, 30),
)
@settings(max_examples=150, deadline=None)
def test_fetch_with_any_responses_returns_each_offset_once(
    size: int, per_pull: int, batch: int, prefetch: int, share: int
) -> None:
    broker = QueueBroker(high=2_000, per_pull=per_pull)
    broker.takes = lambda offset: offset % share == 0
    broker.per_scan = 50
    found = fetch(broker, 13, 13 + size, batch=batch, prefetch=prefetch)

    assert covers(found, 13, 13 + size)
    assert offsets(found) == [each for each in range(13, 13 + size) if each % share == 0]
    assert not any(each.lost for each in found)


def test_fetch_adapts_pieces_to_the_size_of_responses() -> None:
    broker = QueueBroker(high=10_000, per_pull=32)
    fetch(broker, 0, 10_000)

    counts = [count for _, _, count in broker.asked]
    assert len(counts) < 10_000 / 32 * 1.2
    assert counts.count(32) > 280


def test_fetch_from_an_unlimited_broker_pulls_full_batches() -> None:
    broker = QueueBroker(high=10_000, per_pull=5_000)
    broker.per_scan = 5_000
    fetch(broker, 0, 10_000, batch=1_000)

    assert [count for _, _, count in broker.asked] == [1_000] * 10


def test_fetch_limits_held_pulls() -> None:
    broker = QueueBroker(high=1_000, per_pull=10)
    most = 0

    async def run() -> None:
        nonlocal most

        async def locate(_: QueueRange) -> Mapping[int, str]:
            return {0: MASTER}

        time = Time()
        fetcher = RangeFetcher(
            broker,
            QueueRange("T", "broker-a", 0, 0, 1_000),
            PullSettings(group="g", batch=64, max_bytes=1, prefetch=3, timeout_ms=1),
            addresses={0: MASTER},
            locate=locate,
            clock=time,
        )
        taken = 0
        while await fetcher.next() is not None:
            taken += 1
            most = max(most, len(broker.asked) - taken)

    asyncio.run(run())
    assert 0 < most <= 4


@pytest.mark.parametrize(
    "trouble",
    [
        ConnectionLostError("gone"),
        ConnectError("refused", retry_in_ms=50),
        RequestTimeoutError("late"),
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.SYSTEM_ERROR),
    ],
)
def test_fetch_retries_temporary_failures(trouble: Any) -> None:
    broker = QueueBroker(high=50)
    broker.script = [trouble, trouble]
    found = fetch(broker, 0, 50)

    assert offsets(found) == list(range(50))


def test_fetch_from_a_moved_broker_looks_it_up() -> None:
    broker = QueueBroker(high=50)
    broker.script = [ConnectionLostError("gone")] * 4
    found = fetch(broker, 0, 50, addresses={0: "10.9.9.9:1"}, located={0: MASTER})

    assert offsets(found) == list(range(50))
    assert broker.asked[-1][0] == MASTER


def test_fetch_retries_flow_control_longer_than_rejections() -> None:
    broker = QueueBroker(high=5)
    broker.script = [FlowControlError(2, "busy")] * (FAULTS + 5)

    assert offsets(fetch(broker, 0, 5)) == [0, 1, 2, 3, 4]


def test_fetch_without_answers_raises_broker_and_reason() -> None:
    broker = QueueBroker(high=5)
    broker.script = [ConnectError(f"cannot connect to {MASTER}")] * 1_000

    with pytest.raises(RequestTimeoutError) as caught:
        fetch(broker, 2, 5, timeout_ms=3_000)

    assert str(caught.value) == (
        "T/broker-a/0 [2, 5) cannot be read on at offset 2: broker broker-a at 10.0.0.1:10911 "
        "did not answer for 3000 ms: cannot connect to 10.0.0.1:10911"
    )


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(NoPermissionError(16, "no"), NoPermissionError), (SystemFaultError(1, "x"), BrokerError)],
)
def test_fetch_permanent_rejection_raises(trouble: BrokerError, kind: type) -> None:
    broker = QueueBroker(high=5)
    broker.script = [trouble] * (FAULTS + 5)

    with pytest.raises(kind):
        fetch(broker, 0, 5)


def test_fetch_reports_expired_messages_and_reads_the_rest() -> None:
    found = fetch(QueueBroker(low=40, high=100), 10, 60)

    assert covers(found, 10, 60)
    assert offsets(found) == list(range(40, 60))
    lost = [each for each in found if each.lost]
    assert (lost[0].start, lost[-1].end, lost[0].lost) == (10, 40, "the queue begins at 40")


def test_fetch_beyond_the_queue_end_reports_loss_after_retries() -> None:
    broker = QueueBroker(high=20)
    found = fetch(broker, 10, 60, batch=50)

    assert covers(found, 10, 60)
    assert offsets(found) == list(range(10, 20))
    assert {each.lost for each in found if each.lost} == {"the queue ends at 20"}
    assert len([1 for _, start, _ in broker.asked if start == 20]) > 3


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER])
def test_fetch_of_a_deleted_topic_or_queue_reports_loss(code: ResponseCode) -> None:
    broker = QueueBroker(high=50)
    broker.script = [int(code)]
    found = fetch(broker, 0, 50)

    assert len(found) == 1
    assert "broker broker-a says" in found[0].lost


def test_fetch_uses_a_suggested_slave_unless_it_lags() -> None:
    broker = QueueBroker(high=200, per_pull=10)
    broker.suggests = 1
    broker.slave_high = 100
    found = fetch(broker, 0, 200, addresses={0: MASTER, 1: SLAVE}, prefetch=1, batch=10)

    assert offsets(found) == list(range(200))
    assert {address for address, _, _ in broker.asked} == {MASTER, SLAVE}


def test_fetch_without_a_master_reads_a_slave() -> None:
    broker = QueueBroker(high=20)

    assert offsets(fetch(broker, 0, 20, addresses={1: SLAVE})) == list(range(20))


def test_fetch_after_a_group_reset_continues() -> None:
    broker = QueueBroker(high=20)
    broker.script = [int(ResponseCode.PULL_OFFSET_MOVED)]

    assert offsets(fetch(broker, 0, 20)) == list(range(20))


def test_fetch_waits_for_a_slave_that_lags_and_says_so() -> None:
    broker = QueueBroker(high=200)
    broker.slave_high = 100
    with pytest.raises(RequestTimeoutError, match="slave 1 says NO_NEW_MESSAGE of a queue from 0"):
        fetch(broker, 90, 130, addresses={1: SLAVE}, located={1: SLAVE})
    assert len(broker.asked) < 60, "without a busy loop"


def test_fetch_reads_on_at_a_master_that_is_back() -> None:
    broker = QueueBroker(high=200)
    broker.slave_high = 100
    found = fetch(broker, 90, 130, addresses={1: SLAVE}, located={0: MASTER, 1: SLAVE})

    assert offsets(found) == list(range(90, 130))
    assert not any(each.lost for each in found)


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER])
def test_fetch_does_not_count_what_a_slave_does_not_know_as_lost(code: int) -> None:
    broker = QueueBroker(high=100)
    broker.script = [int(code)] * 3
    found = fetch(broker, 0, 10, addresses={1: SLAVE}, located={1: SLAVE}, prefetch=1)

    assert offsets(found) == list(range(10))
    assert not any(each.lost for each in found)


def test_fetch_begun_at_a_slave_does_not_skip_to_its_first_message() -> None:
    broker = QueueBroker(low=50, high=100)
    with pytest.raises(RequestTimeoutError, match="of a queue from 50 to 100"):
        fetch(broker, 10, 60, addresses={1: SLAVE}, located={1: SLAVE})


def test_fetch_leaves_a_slave_that_refuses_reads() -> None:
    broker = QueueBroker(high=200)
    broker.suggests = 1

    class Refusing(QueueBroker):
        refused = 0

        async def pull(self, address: str, header: Any, timeout_ms: int) -> Any:
            if address == SLAVE:
                self.refused += 1
                raise FlowControlError(2, "[REJECTREQUEST]")
            return await super().pull(address, header, timeout_ms)

    refusing = Refusing(high=200)
    refusing.suggests = 1
    both = {0: MASTER, 1: SLAVE}
    found = fetch(refusing, 0, 150, addresses=both, located=both, prefetch=1)
    assert offsets(found) == list(range(150))
    assert refusing.refused == 1

    refusing.refused = 0
    with pytest.raises(RequestTimeoutError, match="REJECTREQUEST"):
        fetch(refusing, 0, 10, addresses={1: SLAVE}, located={1: SLAVE}, prefetch=1)
    assert refusing.refused <= 7, "the pauses grow"


def test_fetch_of_a_master_that_is_lost_uses_its_slave() -> None:
    class Lost(QueueBroker):
        async def pull(self, address: str, header: Any, timeout_ms: int) -> Any:
            if address == MASTER:
                raise ConnectError("10.0.0.1 is down")
            return await super().pull(address, header, timeout_ms)

    both = {0: MASTER, 1: SLAVE}  # the name server does not know it yet
    found = fetch(Lost(high=200), 0, 150, addresses=both, located=both)
    assert offsets(found) == list(range(150))
