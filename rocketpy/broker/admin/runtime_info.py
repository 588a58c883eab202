"""The broker's vital signs: one table of texts that every operator's tool reads.

Source: `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService.getRuntimeInfo` and
`DefaultMessageStore.getRuntimeInfo` (5.4.0).
"""

from typing import Final

from rocketpy.broker.admin.fields import ok
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.stats_rates import format_rates
from rocketpy.proto.codes import RPC_VERSION, RequestCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor

__all__ = ["RuntimeInfoAdmin"]

VERSION_NAME: Final = "V5_4_0"

_MASTER_ID: Final = 0
# Kind of pool to (key of the size, key of the capacity, key of the head's wait).
_POOL_KEYS: Final = {
    **{
        kind: (
            f"{kind}ThreadPoolQueueSize",
            f"{kind}ThreadPoolQueueCapacity",
            f"{kind}ThreadPoolQueueHeadWaitTimeMills",
        )
        for kind in ("send", "pull", "litePull", "query", "ack")
    },
    "endTransaction": ("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", ""),
}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class RuntimeInfoAdmin:
    """The admin request for the runtime information."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self.get}

    def get(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Everything (28), sorted by key."""
        table = {
            **self._store_info(),
            **self._rates(),
            **self._broker_info(),
            **self._totals(),
            **self._pools(),
            **_timer_info(),
        }
        return ok(request, {"table": dict(sorted(table.items()))})

    def _broker_info(self) -> dict[str, str]:
        parts = self._parts
        return {
            "bootTimestamp": str(parts.start_ms),
            "brokerActive": _flag(parts.config.broker_id == _MASTER_ID),
            "brokerVersion": str(RPC_VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "runtime": _duration(parts.clock.time_ms() - parts.start_ms),
            "startAcceptSendRequestTimeStamp": str(
                parts.config.start_accept_send_request_time_stamp
            ),
        }

    def _totals(self) -> dict[str, str]:
        totals = self._parts.stats.day_totals()
        return {
            "msgPutTotalTodayNow": str(totals.put_now),
            "msgPutTotalTodayMorning": str(totals.put_today_morning),
            "msgPutTotalYesterdayMorning": str(totals.put_yesterday_morning),
            "msgGetTotalTodayNow": str(totals.get_now),
            "msgGetTotalTodayMorning": str(totals.get_today_morning),
            "msgGetTotalYesterdayMorning": str(totals.get_yesterday_morning),
        }

    def _rates(self) -> dict[str, str]:
        stats = self._parts.stats
        rates = stats.rates()
        count, size_bytes = stats.put_totals()
        return {
            "putTps": format_rates(rates.put),
            "getFoundTps": format_rates(rates.get_found),
            "getMissTps": format_rates(rates.get_miss),
            "getTotalTps": format_rates(rates.get_total),
            "getTransferredTps": format_rates(rates.get_transferred),
            "putMessageTimesTotal": str(count),
            "putMessageSizeTotal": str(size_bytes),
            "putMessageAverageSize": repr(size_bytes / count if count else 0.0),
        }

    def _store_info(self) -> dict[str, str]:
        store = self._parts.store
        latency = store.put_latency
        behind_bytes = max(0, store.max_phy_offset - store.flushed_phy_offset)
        disk = store.disk_usage()
        return {
            "commitLogMinOffset": str(store.min_phy_offset),
            "commitLogMaxOffset": str(store.max_phy_offset),
            "commitLogDiskRatio": repr(disk.commit_log),
            "consumeQueueDiskRatio": repr(disk.consume_queue),
            "commitLogDirCapacity": (
                f"Total : {_size(disk.total_bytes)}, Free : {_size(disk.free_bytes)}."
            ),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(store.earliest_store_time_ms()),
            "pageCacheLockTimeMills": str(store.append_lock_held_ms),
            "remainHowManyDataToFlush": _size(behind_bytes),
            # There is no transient pool; Apache reports this when it has none either.
            "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
            "putMessageFailedTimes": str(store.put_failed_count),
            "putMessageEntireTimeMax": str(latency.max_ms),
            "putMessageDistributeTime": latency.distribution_text(),
            "putLatency99": f"{latency.percentile_ms(0.99):.2f}",
            "putLatency999": f"{latency.percentile_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(store.get_max_ms),
        }

    def _pools(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind, (size_key, capacity_key, wait_key) in _POOL_KEYS.items():
            pool = self._parts.pools.get(kind)
            # Without a pool the requests run inline: nothing ever waits.
            statistics = None if pool is None else pool.statistics()
            found[size_key] = str(statistics.queued_count if statistics else 0)
            found[capacity_key] = str(statistics.capacity if statistics else 0)
            if wait_key:
                found[wait_key] = str(statistics.head_wait_ms if statistics else 0)
        return found


def _timer_info() -> dict[str, str]:
    """Keys that listings of a cluster cannot do without; nothing is ever behind without a timer."""
    return {
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _duration(ms: int) -> str:
    seconds = max(0, ms) // 1000
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count_bytes: int) -> str:
    """Bytes in the largest binary unit that fits, one digit after the point."""
    if count_bytes < 1024:
        return f"{count_bytes} B"
    value = float(count_bytes)
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.1f} {_UNITS[unit]}"
