"""Transactions of a producer: a half message, the local transaction, its end, and the check-back.

Source: DefaultMQProducerImpl (sendMessageInTransaction, endTransaction, checkTransactionState),
TransactionMQProducer, LocalTransactionState (5.4.0).
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Protocol, Self

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handler_threads import call_on_thread
from rocketpy.client.callbacks.hooks import TxChecker
from rocketpy.client.cluster.broker_api import BrokerApi
from rocketpy.client.lifecycle import ProcessBound
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import TxState, ends_task, retrieve_exit, running_task, shown
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.validation import described, fits
from rocketpy.client.sending.result import SendResult, SendStatus
from rocketpy.errors import (
    ClosedError,
    ConfigError,
    HalfNotStoredError,
    IllegalMessageError,
    NoRouteError,
    RocketPyError,
)
from rocketpy.proto.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.record.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
)
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

END_TIMEOUT_MS: Final = 3_000
MAX_CHECKS: Final = 2_000
"""Most check-backs in progress of one producer; brokers repeat those above it."""
MAX_CHECK_BYTES: Final = 64 * 1024 * 1024
"""Bodies of the messages of these checks; one is taken however large it is."""
_CHECKS_AT_A_TIME: Final = 16


NO_TRANSACTIONS: Final = frozenset({"DEFAULT_GROUP", "DEFAULT_PRODUCER"})
"""Default groups, here and in the official clients."""


class _Addresses(Protocol):
    def master_address(self, broker_name: str) -> str | None: ...


class TransactionEnder(Protocol):
    """Receiver of the outcome of a `Transaction`."""

    async def end(self, half: SendResult, state: TxState) -> None:
        """Commit or roll back a half message."""
        ...


def half_properties(group: str, check_after: Duration | None) -> dict[str, str]:
    """Return the properties that make a message a half message.

    Args:
        group: the producer group, whose members are asked about it.
        check_after: not to be asked about sooner; None leaves it to the broker.

    Raises:
        TypeError: no duration.
        IllegalMessageError: a time that is not positive.
    """
    properties = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: group}
    if check_after is not None:
        if not fits(Duration, check_after):
            raise TypeError(f"check_after: {check_after!r} is not {described(Duration)}")
        check_after_s = to_s(check_after)
        if check_after_s <= 0:
            raise IllegalMessageError(f"check_after must be more than 0 s, not {check_after_s}")
        properties[PROPERTY_CHECK_IMMUNITY_TIME] = str(max(1, round(check_after_s)))
    return properties


def check_transactional(namespace: str, group: str) -> None:
    """Raise ConfigError for a producer group that many applications share."""
    if unwrap_namespace(namespace, group) in NO_TRANSACTIONS:
        reason = (
            "transactions need a group of their own (connect(group=) or producer(group=)): "
            "brokers ask any producer of the group how a transaction ended"
        )
        raise ConfigError(reason, key="group")


class EndTransactionClient:
    """Sends the outcomes of transactions to brokers.

    Args:
        api: sends the requests.
        routes: where brokers are.
        group: the producer group.

    Attributes:
        on_end: called with each outcome sent and the broker's address; for a trace.
    """

    def __init__(self, api: BrokerApi, routes: _Addresses, group: str) -> None:
        self.on_end: Callable[[EndTransactionRequestHeader, str], None] | None = None
        self._api = api
        self._routes = routes
        self._group = group

    async def end(self, half: SendResult, state: TxState) -> None:
        """Commit or roll back a half message.

        Raises:
            RocketPyError: the broker did not confirm it; it asks about the message later.
        """
        address = self._routes.master_address(half.queue.broker_name)
        if address is None:
            raise NoRouteError(f"broker {half.queue.broker_name} has no master")
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=half.offset,
            commit_log_offset=decode_message_id(half.offset_msg_id).phy_offset,
            commit_or_rollback=int(state),
            msg_id=half.msg_id,
            transaction_id=half.transaction_id or half.msg_id,
            topic=half.queue.topic,
            bname=half.queue.broker_name,
        )
        await self._api.end_transaction(address, header, END_TIMEOUT_MS)
        if self.on_end is not None:
            self.on_end(header, address)

    async def answer(
        self,
        asked: CheckTransactionStateRequestHeader,
        asker: str,
        message: MessageExt,
        state: TxState,
        remark: str | None,
    ) -> None:
        """Answer a broker's question; raises ClientError when it could not be written."""
        known = self._routes.master_address(asked.bname) if asked.bname else None
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=int(state),
            msg_id=asked.msg_id or message.msg_id,
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
            topic=message.topic,
            bname=asked.bname,
        )
        address = known or asker
        await self._api.end_transaction(address, header, END_TIMEOUT_MS, remark, oneway=True)
        if self.on_end is not None:
            self.on_end(header, address)


class Transaction(ProcessBound):
    """Transaction for `async with`; made by `Producer.transaction`.

    The block runs once the half message is stored. It ends with a commit, after an exception with
    a rollback, or as `commit`, `rollback` or `unknown` said before. When it is cancelled, no side
    knows how far the local transaction came: the broker is left to ask, where there is a checker.

    The end is sent once. When it gets lost, the broker asks some producer of the group, and its
    `tx_checker` answers; `is_confirmed` says whether the broker took the outcome.

    Attributes:
        id: the transaction's id; also the id of the message that consumers get.
        state: how it ended; None before that.
        is_confirmed: the broker has taken a commit or rollback.

    Args:
        send_half: sends the half message.
        ends: sends the outcome to the broker.
        has_checker: whether the producer can be asked.

    Example:
        ::

            async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
                paid = await was_paid(message.id)
                return rocketpy.TxState.COMMIT if paid else rocketpy.TxState.ROLLBACK


            producer = client.producer(group="shop", tx_checker=check)
            async with producer.transaction("orders", b"o1") as tx:
                await pay(tx.id)  # an exception rolls back
    """

    def __init__(
        self,
        send_half: Callable[[], Awaitable[SendResult]],
        ends: TransactionEnder,
        *,
        has_checker: bool,
    ) -> None:
        self.state: TxState | None = None
        self.is_confirmed: bool = False
        self._send_half = send_half
        self._ends = ends
        self._has_checker = has_checker
        self._half: SendResult | None = None

    def __repr__(self) -> str:
        """Say which one it is and how it stands."""
        if self._half is None:
            return "<Transaction, not begun>"
        state = "open" if self.state is None else self.state.name
        return f"<Transaction {self.id}, {state}{', confirmed' if self.is_confirmed else ''}>"

    @property
    def id(self) -> str:
        """The transaction's id."""
        return self.half.transaction_id or self.half.msg_id

    @property
    def half(self) -> SendResult:
        """Result of the half message.

        Raises:
            ClosedError: it was not sent yet.
        """
        if self._half is None:
            raise ClosedError("the transaction has not begun: use `async with`")
        return self._half

    async def __aenter__(self) -> Self:
        if self._half is not None:
            raise ClosedError("a transaction cannot be used twice")
        try:
            half = await self._send_half()
        except IllegalMessageError:
            raise
        except RocketPyError as error:
            raise HalfNotStoredError(
                f"the half message is not known to be stored, nothing was begun: {error}"
            ) from error
        self._half = half
        if half.status is not SendStatus.SEND_OK:
            await self._end(TxState.ROLLBACK)
            raise HalfNotStoredError(
                f"the half message is stored less safely than the broker promises "
                f"({half.status.name}), nothing was begun"
            )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.state is not None:
            return
        if exc is None:
            await self._end(TxState.COMMIT)
        elif isinstance(exc, Exception) or not self._has_checker:
            await self._end(TxState.ROLLBACK)
        else:
            self.state = TxState.UNKNOWN

    async def commit(self) -> None:
        """Let consumers have the message; the rest of the block is no part of the transaction."""
        await self._decide(TxState.COMMIT)

    async def rollback(self) -> None:
        """Drop the message."""
        await self._decide(TxState.ROLLBACK)

    def unknown(self) -> None:
        """Leave it to the check-back: the broker asks later, and `tx_checker` answers."""
        self._check_undecided()
        if not self._has_checker:  # another process of the group may have one
            logger.warning(
                "transaction left to the check-back, this producer has no tx_checker: "
                "msg_id=%(msg_id)s",
                {"msg_id": self.half.msg_id},
            )
        self.state = TxState.UNKNOWN

    async def _decide(self, state: TxState) -> None:
        self._check_undecided()
        await self._end(state)

    def _check_undecided(self) -> None:
        _ = self.half  # raises before the beginning
        if self.state is not None:
            raise ClosedError(f"the transaction has ended: {self.state.name}")

    async def _end(self, state: TxState) -> None:
        half = self.half
        self.state = state
        try:
            await self._ends.end(half, state)
        except RocketPyError as error:
            logger.warning(
                "transaction outcome not confirmed, the broker will check back: "
                "msg_id=%(msg_id)s state=%(state)s error=%(error)r",
                {"msg_id": half.msg_id, "state": state.name, "error": error},
            )
        else:
            self.is_confirmed = True


class CheckBackResponder:
    """Has a producer's checker answer brokers' questions, a bounded number at a time.

    Args:
        checker: says how a local transaction ended.
        ends: sends the outcome to the broker.
        serializer: reads bodies in `message.decode()`.
        clock: limits the log of the checker's failures.
        namespace: of the client.
    """

    def __init__(
        self,
        checker: TxChecker,
        ends: EndTransactionClient,
        serializer: Serializer,
        clock: Clock,
        namespace: str = "",
    ) -> None:
        self._checker = checker
        self._namespace = namespace
        self._ends = ends
        self._serializer = serializer
        self._failures = FailureLog(clock, "tx_checker", "checked_back")
        self._slots = asyncio.Semaphore(_CHECKS_AT_A_TIME)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._size_bytes = 0
        self._is_full = False
        self._is_closed = False

    def ask(
        self, asked: CheckTransactionStateRequestHeader, asker: str, message: MessageExt
    ) -> None:
        """Answer a question of the broker at the address `asker`, soon."""
        if self._is_closed:
            return
        count, size_bytes = len(self._tasks), self._size_bytes + len(message.body)
        if count >= MAX_CHECKS or (count and size_bytes > MAX_CHECK_BYTES):
            if not self._is_full:  # once, and not for each of thousands a second
                self._is_full = True
                logger.warning(
                    "transaction check skipped, too many in progress: count=%(count)d",
                    {"count": count},
                )
            return
        self._is_full = False
        self._size_bytes = size_bytes
        task = asyncio.get_running_loop().create_task(self._answer(asked, asker, message))
        self._tasks[task] = None
        task.add_done_callback(functools.partial(self._answered, len(message.body)))

    def _answered(self, body_bytes: int, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._size_bytes -= body_bytes

    async def close(self) -> None:
        """Answer no more; brokers ask another producer."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(
        self, asked: CheckTransactionStateRequestHeader, asker: str, message: MessageExt
    ) -> None:
        async with self._slots:
            state, remark = await self._check(message, asked.bname or "")
        try:
            await self._ends.answer(asked, asker, message, state, remark)
        except RocketPyError as error:
            logger.info(
                "transaction check not answered: msg_id=%(msg_id)s error=%(error)r",
                {"msg_id": message.msg_id, "error": error},
            )

    async def _check(self, message: MessageExt, broker_name: str) -> tuple[TxState, str | None]:
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        serializer, namespace = self._serializer, self._namespace
        received = ReceivedMessage(message, queue, serializer=serializer, namespace=namespace)
        task = running_task()
        try:
            if inspect.iscoroutinefunction(self._checker):
                state = await self._checker(received)
            else:
                state = await call_on_thread(self._checker, received)
                if inspect.isawaitable(state):  # a lambda around a coroutine function
                    state = await state
            return TxState(state), None
        except BaseException as error:
            if ends_task(error, task):
                retrieve_exit(error, task)
                raise
            self._failures.note([received], error)
            return TxState.UNKNOWN, f"checkLocalTransactionState Exception: {shown(error)}"
