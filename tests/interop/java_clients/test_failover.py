"""The official Java client while the master of a broker group changes.

The measured times are printed: `pytest -s`.
"""

import signal
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from rocketpy.proto.bodies.group import SetMessageRequestModeRequestBody
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.integration.broker.failover_group import FailoverGroup
from tests.interop.java_clients.failover_clients import (
    GROUPS,
    TOPIC,
    Delivery,
    Events,
    FailoverClients,
)
from tests.interop.java_clients.jvm import wait_for

_CONSUMERS = 2
_WAIT_MS = {"delayed": 10_000, "timed": 6_000}


@pytest.fixture
def group(jdk: None, tmp_path: Path) -> FailoverGroup:
    """Three replicas that check half messages back after a second."""
    return FailoverGroup(tmp_path, 3, transactionCheckInterval="1000", transactionTimeOut="1000")


def test_java_clients_while_master_is_killed_and_stopped_lose_nothing(
    group: FailoverGroup, tmp_path: Path
) -> None:
    clients = FailoverClients(group.namesrv, tmp_path / "home", poll_ms=1_000, consumers=_CONSUMERS)
    with group.running(), clients.running():
        wait_for(lambda: len(group.info()[1]) == 3)
        clients.ask_line("send")
        clients.wait_for(lambda seen: len(seen.sent) > 20)
        _set_pop(group)
        clients.ask_line("consume")
        clients.more(300)
        for number in (signal.SIGKILL, signal.SIGTERM):
            wait_for(lambda: _all_members_are_known(group))
            _replace_master(group, clients, number)
        clients.ask_line("pause")
        clients.wait_for(lambda seen: not any(map(seen.missing, seen.deliveries)))
        _check(clients.seen)


def _set_pop(group: FailoverGroup) -> None:
    """Make the consumers of the group `popped` pop."""
    body = SetMessageRequestModeRequestBody(TOPIC, "popped", "POP", 8).encode()
    assert group.master is not None
    with Wire(group.address(group.master)) as peer:
        assert peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body).code == 0


def _all_members_are_known(group: FailoverGroup) -> bool:
    """Return whether every replica has had heartbeats of all consumers."""
    for address in group.replicas:
        with Wire(address) as peer:
            for name in GROUPS:
                fields = {"consumerGroup": name}
                response = peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
                if response.body.count(name.encode()) != _CONSUMERS:
                    return False
    return True


def _replace_master(group: FailoverGroup, clients: FailoverClients, number: signal.Signals) -> None:
    """End the master under load, and start it again when another one serves."""
    lost = group.master
    assert lost is not None
    begin_ms = _now_ms()
    group.signal(lost, number)
    wait_for(lambda: group.master not in {None, lost})
    elected_ms = _now_ms()
    clients.more(100)
    group.start(lost)
    wait_for(lambda: len(group.info()[1]) == len(group.replicas))
    clients.more(100)
    _print_gaps(clients.seen, number, begin_ms, elected_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print_gaps(seen: Events, number: signal.Signals, begin_ms: int, elected_ms: int) -> None:
    times = {
        "sends": sorted(at for body, at in seen.sent.items() if body.startswith("plain")),
        **{name: [one.at_ms for one in each] for name, each in seen.deliveries.items()},
    }
    gaps = {
        name: max(y - x for x, y in pairwise(each) if y >= begin_ms) for name, each in times.items()
    }
    errors: dict[str, int] = defaultdict(int)
    for at_ms, error in seen.failed:
        if at_ms >= begin_ms:
            errors[error] += 1
    print(f"\n{number.name}: another master after {elected_ms - begin_ms} ms")
    print(f"  longest gaps in ms: {gaps}")
    print(f"  failed sends: {dict(errors)}")


def _check(seen: Events) -> None:
    for name, deliveries in seen.deliveries.items():
        bodies = [one.body for one in deliveries]
        assert set(bodies) <= seen.attempted, f"{name} got messages that were not sent"
        assert not [each for each in bodies if "rollback" in each], f"{name} got rolled back ones"
        for one in deliveries:
            wait_ms = _WAIT_MS.get(one.kind, 0)
            assert one.at_ms >= one.born_ms + wait_ms, f"{name} got {one} early"
        places: dict[tuple[int, int], set[str]] = defaultdict(set)
        for one in deliveries:
            places[one.queue_id, one.offset].add(one.body)
        assert all(len(each) == 1 for each in places.values()), f"{name} saw a log that was cut"
        again = len(bodies) - len(places)
        print(f"{name}: {again} of {len(bodies)} repeated, {len(places) - len(set(bodies))} copies")
    _check_order(seen.deliveries["ordered"])


def _check_order(deliveries: list[Delivery]) -> None:
    """Check that first deliveries are in the order of each queue, without a hole."""
    last: dict[int, int] = defaultdict(lambda: -1)
    for one in deliveries:
        assert one.offset <= last[one.queue_id] + 1, f"{one} before offset {last[one.queue_id] + 1}"
        last[one.queue_id] = max(last[one.queue_id], one.offset)
