"""Runtime information: one table of texts that all administration tools read.

Source: `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService.getRuntimeInfo` and
`DefaultMessageStore.getRuntimeInfo` (5.4.0).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rocketpy import __version__
from rocketpy.broker.admin.response import ok
from rocketpy.broker.cluster.readiness import BrokerReadiness
from rocketpy.broker.fast_path.compiled_path import send_path
from rocketpy.broker.feature import Feature
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RPC_VERSION, RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.readiness import as_text
from rocketpy.store.message_store import MessageStore

VERSION_NAME: Final = "V5_4_0"

_MASTER_ID: Final = 0
_INT_MAX: Final = (1 << 31) - 1
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
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


class RuntimeInfoAdmin:
    """Admin request for the runtime information."""

    def __init__(
        self,
        *,
        configs: LiveBrokerConfig,
        features: Sequence[Feature],
        pools: Mapping[str, BusinessPool],
        readiness: BrokerReadiness,
        start_ms: int,
        stats: BrokerStats,
        store: MessageStore,
    ) -> None:
        self._configs = configs
        self._features = features
        self._business_pools = pools
        self._readiness = readiness
        self._start_ms = start_ms
        self._stats = stats
        self._store = store

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self.get}

    def get(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the table (28), sorted by key."""
        table = {
            **self._store_info(),
            **self._broker_info(),
            **self._rocketpy_info(),
            **self._totals(),
            **self._pools(),
        }
        for feature in self._features:
            if feature.runtime_info is not None:
                table |= feature.runtime_info()
        return ok(request, KVTable(dict(sorted(table.items()))))

    def _broker_info(self) -> dict[str, str]:
        return {
            "bootTimestamp": str(self._start_ms),
            "brokerActive": _flag(self._configs.broker.broker_id == _MASTER_ID),
            "brokerVersion": str(RPC_VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "plainSends": send_path(self._business_pools.get("send")),
            "startAcceptSendRequestTimeStamp": str(
                self._configs.broker.start_accept_send_request_time_stamp
            ),
        }

    def _rocketpy_info(self) -> dict[str, str]:
        """Return the keys that Apache's table does not have."""
        reasons = self._readiness.reasons()
        return {
            "rocketpyNotReady": as_text(reasons),
            "rocketpyReady": _flag(not reasons),
            "rocketpyRole": self._configs.store.broker_role,
            "rocketpyVersion": __version__,
        }

    def _totals(self) -> dict[str, str]:
        totals = self._stats.day_totals()
        return {
            "msgPutTotalTodayNow": str(totals.put_now),
            "msgPutTotalTodayMorning": str(totals.put_today_morning),
            "msgPutTotalYesterdayMorning": str(totals.put_yesterday_morning),
            "msgGetTotalTodayNow": str(totals.get_now),
            "msgGetTotalTodayMorning": str(totals.get_today_morning),
            "msgGetTotalYesterdayMorning": str(totals.get_yesterday_morning),
        }

    def _store_info(self) -> dict[str, str]:
        """Return the store's table, with the additional keys of this response."""
        store = self._store
        disk = store.disk_usage()
        return {
            **store.runtime_info(),
            "commitLogDirCapacity": (
                f"Total : {_size(disk.total_bytes)}, Free : {_size(disk.free_bytes)}."
            ),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "earliestMessageTimeStamp": str(store.earliest_store_time_ms()),
            "pageCacheLockTimeMills": str(store.lock_time_ms),
            "remainHowManyDataToFlush": _size(store.max_phy_offset - store.flushed_phy_offset),
            # There is no transient pool; Apache reports the same value without one.
            "remainTransientStoreBufferNumbs": str(_INT_MAX),
        }

    def _pools(self) -> dict[str, str]:
        """Return the figures of each pool; 0 for kinds of requests without a pool."""
        found: dict[str, str] = {}
        for kind, (size_key, capacity_key, wait_key) in _POOL_KEYS.items():
            pool = self._business_pools.get(kind)
            statistics = None if pool is None else pool.statistics()
            found[size_key] = str(statistics.queued_count if statistics else 0)
            found[capacity_key] = str(statistics.capacity if statistics else 0)
            if wait_key:
                found[wait_key] = str(statistics.head_wait_ms if statistics else 0)
        return found


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _size(count_bytes: int) -> str:
    """Format bytes in the largest binary unit that fits, with one decimal."""
    if count_bytes < 1024:
        return f"{max(0, count_bytes)} B"
    value = float(count_bytes)
    unit = ""
    for unit in _UNITS:  # noqa: B007 - the last one is wanted
        value /= 1024
        if value < 1024:
            break
    return f"{value:.1f} {unit}"
