"""Counters with their windows of a minute, an hour and a day.

Source: `AdminBrokerProcessor.viewBrokerStatsData`, `BrokerStatsData` (5.4.0).
"""

from typing import Any

from rocketpy.broker.admin.fields import ok, refuse, required
from rocketpy.broker.stats import BrokerStats
from rocketpy.broker.stats_set import StatsSnapshot
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor


class StatsAdmin:
    """Admin requests about the broker's counters."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {RequestCode.VIEW_BROKER_STATS_DATA: self.view}

    def view(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """One counter (315)."""
        name, key = required(request, "statsName"), required(request, "statsKey")
        data = self._stats.stats_data(name, key)
        if data is None:
            remark = f"The stats <{name}> <{key}> not exist"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return ok(
            request,
            {
                "statsDay": _json(data.day),
                "statsHour": _json(data.hour),
                "statsMinute": _json(data.minute),
            },
        )


def _json(snapshot: StatsSnapshot) -> dict[str, Any]:
    return {"avgpt": snapshot.avgpt, "sum": snapshot.sum, "tps": snapshot.tps}
