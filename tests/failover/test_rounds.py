"""Rounds of faults on a group with a controller; `python -m tests.failover` runs hundreds."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketpy.proto.record.message_id import encode_message_id
from rocketpy.proto.replication.epochs import Epoch
from tests.etcd import etcd_program
from tests.failover import network
from tests.failover.faults import LINKS, PROCESSES, SHARED, Kind
from tests.failover.rounds import Plan, check_masters, run
from tests.sampling import part

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_800)]


def run_some(
    directory: Path, kinds: Sequence[Kind], rounds: int, *, flush: str = "ASYNC_FLUSH"
) -> None:
    """Run rounds of some kinds, which the commit chooses."""
    said: list[str] = []
    plan = Plan(
        rounds, flush, seed=part(), has_etcd=kinds is SHARED, only=[each.name for each in kinds]
    )
    result = run(directory, plan, said.append)
    assert sum(map(len, result.gaps.values())) == rounds
    assert result.history.count > 100
    assert result.masters


@pytest.mark.long
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_group_under_every_fault_keeps_what_was_acknowledged(tmp_path: Path, flush: str) -> None:
    run_some(tmp_path, PROCESSES, len(PROCESSES), flush=flush)


@pytest.mark.long
@pytest.mark.skipif(not network.is_available(), reason="needs network namespaces")
def test_group_with_cut_and_slow_links_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    run_some(tmp_path, LINKS, len(LINKS) // 2)


@pytest.mark.long
@pytest.mark.skipif(not network.is_available(), reason="needs network namespaces")
@pytest.mark.skipif(etcd_program("etcd") is None, reason="needs etcd (make etcd)")
def test_group_with_shared_controllers_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    run_some(tmp_path, SHARED, len(SHARED) // 2)


def test_masters_of_different_epochs_are_accepted_and_those_of_one_are_not() -> None:
    epochs, masters = (Epoch(1, 0), Epoch(3, 100)), dict[int, str]()
    ids = [encode_message_id("10.0.0.1:1", 99), encode_message_id("10.0.0.2:1", 100)]
    check_masters(ids, epochs, masters)
    assert masters == {1: "10.0.0.1:1", 3: "10.0.0.2:1"}
    with pytest.raises(AssertionError, match="epoch 3"):
        check_masters([encode_message_id("10.0.0.1:1", 500)], epochs, masters)
