"""The operations of mqadmin as methods: `rocketpy.admin.connect("host:9876")`."""

from rocketpy.admin.admin import Admin, connect
from rocketpy.admin.dead_letters import DeadLetter
from rocketpy.admin.results import (
    Answers,
    BrokerStatus,
    GroupLag,
    GroupReplica,
    GroupStatus,
    GroupSummary,
    Member,
    OffsetMove,
    QueueLag,
    QueueStatus,
    ReplicaStatus,
    TopicStatistics,
    TopicStatus,
)

__all__ = [
    "Admin",
    "Answers",
    "BrokerStatus",
    "DeadLetter",
    "GroupLag",
    "GroupReplica",
    "GroupStatus",
    "GroupSummary",
    "Member",
    "OffsetMove",
    "QueueLag",
    "QueueStatus",
    "ReplicaStatus",
    "TopicStatistics",
    "TopicStatus",
    "connect",
]
