"""What the compiled path of sends asks of transactions, once for all halves and commits of a read.

It takes halves and one-way commits among plain sends (docs/decisions/0008), those that are as
usual in every respect: a half that is stored as it is sent, but for what `HalfMessages` adds, and a
commit of a half that nobody has decided, checked or moved. Whatever else there is goes the way of
`EndTransactions`, which also says why it is refused.

The order on disk is that of `EndTransactions`: halves are claimed before their messages are
written, and named by an op message after that.
"""

from collections.abc import Sequence

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.transaction.half_message import HalfMessages
from rocketpy.broker.transaction.ledger import HalfLedger, HalfState
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC


class BulkTransactions:
    """Takes part in runs of sends that are written at once; safe from any thread.

    Args:
        halves: says whether any are taken.
        ledger: which halves are decided.
        ops: has decided halves written down.
        counts: how many transactions of each topic are open.
        topics: says whether the topic of halves is there.
        config: the broker's settings; ends that have a pool of threads are left to it.

    Attributes:
        counts: how many transactions of each topic are open.
    """

    def __init__(
        self,
        halves: HalfMessages,
        ledger: HalfLedger,
        ops: OpMessages,
        counts: PendingCounts,
        topics: TopicTable,
        config: BrokerConfig,
    ) -> None:
        self._halves = halves
        self._ledger = ledger
        self._ops = ops
        self._topics = topics
        self._takes_ends = config.end_transaction_thread_pool_nums == 0
        self.counts = counts

    def count(self, topic: str, number: int) -> None:
        """Count transactions of a topic that began, less those that ended."""
        self.counts.add(topic, number)

    @property
    def takes_halves(self) -> bool:
        """Whether half messages are stored at the moment."""
        return not self._halves.rejects and self._topics.get(TRANS_HALF_TOPIC) is not None

    @property
    def op_room_bytes(self) -> int:
        """How many bytes of names of halves may be added before an op message has to be written.

        0 or less: none; no commit is taken then.
        """
        return self._ops.room_bytes if self._takes_ends else 0

    def claim(self, places: Sequence[int]) -> int:
        """Claim halves for their commits, in their order; return how many are this run's.

        Each of them has to be given to `committed` or `release`.

        Args:
            places: queue offsets of halves.
        """
        return self._ledger.claim_run(places, HalfState.COMMITTED)

    def committed(self, places: Sequence[int]) -> None:
        """Have halves named by an op message; what they commit is stored."""
        self._ops.add(places)
        self._ledger.settle_run(places)

    def release(self, places: Sequence[int]) -> None:
        """Open halves again whose messages were not stored."""
        for place in places:
            self._ledger.release((place,))
