"""The requests of operators' tools (mqadmin, consoles, exporters), one module a concern."""

from rocketpy.broker.admin.config import ConfigAdmin
from rocketpy.broker.admin.connections import ConnectionAdmin
from rocketpy.broker.admin.consume_stats import ConsumeStatsAdmin
from rocketpy.broker.admin.groups import GroupAdmin
from rocketpy.broker.admin.offsets import OffsetAdmin
from rocketpy.broker.admin.queues import QueueAdmin
from rocketpy.broker.admin.relay import RelayAdmin
from rocketpy.broker.admin.runtime_info import RuntimeInfoAdmin
from rocketpy.broker.admin.stats_data import StatsAdmin
from rocketpy.broker.admin.topics import TopicAdmin
from rocketpy.broker.admin.unsupported import UnsupportedAdmin
from rocketpy.broker.parts import BrokerParts
from rocketpy.remoting.dispatch import Processor


def build_processors(parts: BrokerParts) -> dict[int, Processor]:
    """Every admin request code of a broker and what answers it."""
    handlers = (
        TopicAdmin(parts),
        GroupAdmin(parts),
        ConnectionAdmin(parts),
        ConsumeStatsAdmin(parts),
        OffsetAdmin(parts),
        QueueAdmin(parts),
        RelayAdmin(parts),
        StatsAdmin(parts),
        ConfigAdmin(parts),
        RuntimeInfoAdmin(parts),
        UnsupportedAdmin(parts),
    )
    table: dict[int, Processor] = {}
    for handler in handlers:
        own = handler.processors()
        assert not table.keys() & own.keys(), handler
        table.update(own)
    return table
