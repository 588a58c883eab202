"""Interface of transactions for the compiled send path, called once for a bulk.

The compiled path (docs/decisions/0008) handles eligible half messages and one-way commits: a half
that is stored as sent, but for the additions of `HalfMessages`, and the commit of a half that was
not decided, checked or moved before. All others take the general path, `EndTransactions`, which
also reports why they are refused.

The order on disk is that of `EndTransactions`: halves are claimed before their messages are
written, and named by an op message afterwards.
"""

from collections.abc import Callable, Sequence

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.transaction.half_message import HalfMessages
from rocketpy.broker.transaction.ledger import HalfLedger, HalfState
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC


class BulkTransactions:
    """Bulk handling of half messages and commits; safe from any thread.

    Args:
        halves: whether half messages are accepted.
        ledger: states of the halves.
        ops: op messages for decided halves.
        counts: number of open transactions by topic.
        topics: topic table, which must have the topic of halves.
        config: the broker's settings; with a thread pool for ends, no commits are accepted.
        is_online: returns whether transactions may end; see `EndTransactions`.

    Attributes:
        counts: number of open transactions by topic.
    """

    def __init__(
        self,
        halves: HalfMessages,
        ledger: HalfLedger,
        ops: OpMessages,
        counts: PendingCounts,
        topics: TopicTable,
        config: BrokerConfig,
        *,
        is_online: Callable[[], bool] = lambda: True,
    ) -> None:
        self._halves = halves
        self._ledger = ledger
        self._ops = ops
        self._topics = topics
        self._takes_ends = config.end_transaction_thread_pool_nums == 0
        self._is_online = is_online
        self.counts = counts

    def count(self, topic: str, number: int) -> None:
        """Add a number of open transactions of a topic; negative when they end."""
        self.counts.add(topic, number)

    @property
    def takes_halves(self) -> bool:
        """Whether half messages are accepted at the moment."""
        return not self._halves.rejects and self._topics.get(TRANS_HALF_TOPIC) is not None

    @property
    def op_room_bytes(self) -> int:
        """Free space of the next op message in bytes; 0 or less: commits are not accepted.

        A full op message is written on the general path, in its turn.
        """
        return self._ops.room_bytes if self._takes_ends and self._is_online() else 0

    def claim(self, places: Sequence[int]) -> int:
        """Claim half messages for their commits, in order; returns the number of claimed ones.

        The caller must pass each of them to `committed` or `release`.

        Args:
            places: queue offsets of the halves.
        """
        return self._ledger.claim_run(places, HalfState.COMMITTED)

    def committed(self, places: Sequence[int]) -> None:
        """Queue half messages for an op message; their commits are stored."""
        self._ops.add(places)
        self._ledger.settle_run(places)

    def release(self, places: Sequence[int]) -> None:
        """Release half messages with commits that were not stored."""
        for place in places:
            self._ledger.release((place,))
