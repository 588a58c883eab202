"""Number of open transactions by topic: transactionMetrics."""

from pathlib import Path
from typing import Any

from rocketpy.store.results import PutMessageStatus
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, simulate
from tests.unit.broker.transaction.kit import ROLLBACK, Kit
from tests.unit.broker.transaction.test_delayed_half import end, send_half


def test_counts_transaction_until_decided() -> None:
    kit = Kit()
    kit.counts.add("T", 3)
    first, second, third = (kit.half(b"%d" % number) for number in range(3))
    assert kit.end(first) == [None]
    assert kit.counts.of("T") == 2
    assert kit.end(second, ROLLBACK) == [None]
    assert kit.counts.of("T") == 1
    kit.end(first)
    kit.end(second, ROLLBACK)
    assert kit.counts.of("T") == 1, "they were decided before"
    kit.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert kit.end(third) != [None]
    assert kit.counts.of("T") == 1, "it is still open"


def test_counts_abandoned_transaction_is_not_open() -> None:
    kit = Kit(transaction_check_max=1)
    kit.counts.add("T", 1)
    kit.half()
    kit.round()
    assert kit.counts.of("T") == 1
    kit.round()
    kit.round()
    assert kit.counts.of("T") == 0


def test_counts_half_by_real_topic_in_apache_format() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> Any:
        open_one = await send_half(popper, {})
        await send_half(popper, {"UNIQ_KEY": "V"})
        assert await end(popper, open_one) == 0
        await after(25)
        one = cluster.brokers[0]
        root = Path(one.broker.parts.configs.store.store_path_root_dir)
        return one.files.read_bytes(root / "config" / "transactionMetrics")

    content = simulate(case, transactionTimeOut="600000")
    assert b'"transactionCount":{\n\t\t"T":{\n\t\t\t"count":1' in content
