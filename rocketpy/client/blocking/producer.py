"""Blocking producer and transaction."""

import functools
from concurrent.futures import Future
from typing import Any, Unpack

from rocketpy.client.blocking.facade import BlockingFacade, ClosableFacade, facade_of
from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.blocking.send_queue import BlockingSendQueue, copy_outcome
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.producer.middleware_producer import MiddlewareProducer
from rocketpy.client.producer.producer import Producer as AsyncProducer
from rocketpy.client.producer.transaction import Transaction as AsyncTransaction
from rocketpy.client.producer.unfinished_sends import UNFINISHED_SENDS
from rocketpy.client.sending.result import SendResult


# Its plain members only read or set attributes; they work after the client was closed, too.
@facade_of(AsyncTransaction, direct=("id", "half", "unknown"))
class Transaction(BlockingFacade):
    """A transaction, used with `with`; see `rocketpy.Transaction`."""

    @property
    def state(self) -> TxState | None:
        """State after the transaction ended; None before that."""
        state: TxState | None = self._wrapped.state
        return state

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker accepted a commit or rollback."""
        return bool(self._wrapped.is_confirmed)


@facade_of(AsyncProducer, without=("check_transaction",))  # brokers call it
class Producer(ClosableFacade):
    """Sends messages; see `rocketpy.Producer`."""

    def __init__(self, thread: LoopThread, wrapped: AsyncProducer) -> None:
        super().__init__(thread, wrapped)
        UNFINISHED_SENDS.complete(wrapped, thread.submit)
        # Middlewares build and send the message themselves, on the loop.
        is_pipelined = not isinstance(wrapped, MiddlewareProducer)
        self._sends = BlockingSendQueue(thread, wrapped) if is_pipelined else None

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> Future[SendResult]:
        """Start a send and return a future of its result; many may be in flight.

        Waits first until one more fits into `max_in_flight` and `max_in_flight_bytes`; once they
        are reached, until several do. Ten times as fast as one `send` after the other.

        Raises:
            IllegalMessageError: the message breaks a limit; nothing was sent.
            ClosedError: the client is closed, or belongs to a parent process.
        """
        if self._sends is not None:
            return self._sends.send(topic, body, options)

        async def start() -> Future[SendResult]:
            await self._wrapped.ready()
            result: Future[SendResult] = Future()
            result.set_running_or_notify_cancel()  # a started send cannot be cancelled
            sent = self._wrapped.send_nowait(topic, body, **options)
            sent.add_done_callback(functools.partial(copy_outcome, result))
            return result

        return self._thread.run(start())

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        """Send without waiting for a response; see `rocketpy.Producer.send_oneway`.

        Waits first until one more fits into the limits.
        """
        if self._sends is not None:
            self._sends.send_oneway(topic, body, options)
            return

        async def start() -> None:
            await self._wrapped.ready()
            self._wrapped.send_oneway(topic, body, **options)

        self._thread.run(start())

    def ready(self) -> None:
        """Wait until one more `send_nowait` or `send_oneway` fits into the limits."""
        if self._sends is not None:
            self._sends.wait_for_space()
        else:
            self._thread.run(self._wrapped.ready())
