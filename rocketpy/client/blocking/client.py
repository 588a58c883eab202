"""Blocking client and consumers."""

import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self

from rocketpy.client.blocking.facade import ClosableFacade, facade_of
from rocketpy.client.blocking.loop_thread import LoopThread
from rocketpy.client.callbacks.handlers import check_not_on_own_thread
from rocketpy.client.client import Client as AsyncClient
from rocketpy.client.config import ClientConfig
from rocketpy.client.consumer.pull_consumer import PullConsumer as AsyncPullConsumer
from rocketpy.client.consumer.push_consumer import Consumer as AsyncConsumer
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.options.keyword_options import function_options
from rocketpy.client.pop.pop_consumer import PopConsumer as AsyncPopConsumer
from rocketpy.errors import ClosedError


def _stop(self: Any) -> None:  # noqa: ANN401 - one of three facades
    """Deliver no more messages, for a signal handler; delivered ones are finished."""
    self._thread.call(self._wrapped.stop)


class _GroupFacade(ClosableFacade):
    def close(self) -> None:
        """Finish the messages in progress and close; see `rocketpy.Consumer.close`."""
        check_not_on_own_thread(self._wrapped._workers())  # noqa: SLF001 - same package
        super().close()


# `stats` locks for itself, and is readable after the client was closed.
@facade_of(AsyncConsumer, direct=("stats",))
class Consumer(_GroupFacade, Generic[B_co]):
    """Receives the messages of a group; see `rocketpy.Consumer`."""

    stop = _stop


@facade_of(AsyncPopConsumer, direct=("stats",))
class PopConsumer(_GroupFacade, Generic[B_co]):
    """Pops the messages of a group; see `rocketpy.PopConsumer`."""

    stop = _stop


@facade_of(AsyncPullConsumer)
class PullConsumer(ClosableFacade, Generic[B_co]):
    """Pulls messages when the program asks for them; see `rocketpy.PullConsumer`."""

    stop = _stop


@facade_of(AsyncClient)
class Client(ClosableFacade):
    """A client whose event loop runs on another thread; see `rocketpy.Client`."""

    def __init__(self, client: AsyncClient) -> None:
        self._wrapped = client
        self._started: LoopThread | None = None
        self._closing = threading.RLock()  # reentrant: a signal handler may close, too

    @property
    def _thread(self) -> LoopThread:  # type: ignore[override]  # an attribute of other facades
        if self._started is None:
            raise ClosedError("the client is not started: use `with`, or start()")
        return self._started

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(lambda: self._wrapped.__aexit__(exc_type, exc, traceback))

    def start(self) -> None:
        """Start the thread and the client's timers.

        Raises:
            ClosedError: the client was closed; connect() makes another.
        """
        if self._started is not None:
            return
        thread = LoopThread()
        try:
            thread.run(self._wrapped.start())
        except BaseException:
            thread.close()
            raise
        self._started = thread

    def close(self) -> None:
        """Close consumers, producers and connections, and stop the thread.

        Further calls wait for the same close; in a forked child there is nothing to close.
        """
        self._end(self._wrapped.close)

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        thread = self._started
        if thread is None or thread.is_of_parent:
            return
        thread.check()
        check_not_on_own_thread(self._wrapped._workers())  # noqa: SLF001 - same package
        with self._closing:
            if self._started is None:
                return
            try:
                thread.run(close())
            finally:
                self._started = None
                thread.close()


@function_options(ClientConfig)
def connect(config: ClientConfig) -> Client:
    """Describe a client, as `rocketpy.connect` does; `with` or `start()` starts it."""
    return Client(AsyncClient(config))
