"""Counters with their windows of a minute, an hour and a day.

Source: `AdminBrokerProcessor.viewBrokerStatsData`, `BrokerStatsData` (5.4.0).
"""

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.broker.stats.counters import StatsSnapshot
from rocketpy.proto.bodies.stats import BrokerStatsData, BrokerStatsItem
from rocketpy.proto.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor


class StatsAdmin:
    """Admin requests about the broker's counters."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {RequestCode.VIEW_BROKER_STATS_DATA: self.view}

    def view(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return one counter (315)."""
        header = ViewBrokerStatsDataRequestHeader.from_ext(request.ext_fields)
        data = self._stats.stats_data(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return ok(
            request,
            BrokerStatsData(
                stats_minute=_item(data.minute),
                stats_hour=_item(data.hour),
                stats_day=_item(data.day),
            ),
        )


def _item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.avgpt)
