"""`/live` and `/ready` of a server or worker process over HTTP.

`/live` is 200 while the process runs and its loop answers; a start may hold the loop for as long
as a recovery takes. `/ready` is 200 while the process serves, else 503 with the reasons:

    {"ready": false, "version": "0.1.0", "reasons": [{"code": "...", "message": "..."}]}
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

import orjson

from rocketpy import __version__
from rocketpy.remoting.http_listener import HttpAnswer, HttpListener
from rocketpy.runtime.readiness import NotReady, ServerState, state_reasons

_READY_LIMIT_S: Final = 1.0
_LIVE_LIMIT_S: Final = 5.0


class HealthPages:
    """Health of one process.

    Args:
        address: local address.
        port: 0 chooses a free one.
        reasons: returns why the process is not ready; called on its loop.
        program: noun for the process, for reasons.
        advice: what to do when the port cannot be opened.

    Attributes:
        state: phase of the process; set by its owner.
    """

    def __init__(
        self,
        address: str,
        port: int,
        reasons: Callable[[], Sequence[NotReady]],
        *,
        program: str = "server",
        advice: str = "change healthListenPort or healthBindAddress",
    ) -> None:
        self.state: ServerState = ServerState.STARTING
        self._reasons = reasons
        self._program = program
        self._loop: asyncio.AbstractEventLoop | None = None
        pages = {"/live": self._live, "/ready": self._ready}
        self._listener = HttpListener(address, port, pages, advice=advice)

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._listener.port

    def start(self) -> None:
        """Listen; called on the loop of the process.

        Raises:
            StartError: the port is taken, or the address is not of this machine.
        """
        self._loop = asyncio.get_running_loop()
        self._listener.start()

    def stop(self) -> None:
        """Close the port."""
        self._listener.stop()

    async def _live(self) -> HttpAnswer:
        reasons: Sequence[NotReady] | None = ()
        if self.state is ServerState.SERVING:
            reasons = await self._ask(list, _LIVE_LIMIT_S)
        if reasons is None:
            return _answer("live", [_held(_LIVE_LIMIT_S)])
        return _answer("live", [])

    async def _ready(self) -> HttpAnswer:
        reasons: Sequence[NotReady] | None = state_reasons(self.state, self._program)
        if not reasons:
            reasons = await self._ask(self._reasons, _READY_LIMIT_S)
        return _answer("ready", [_held(_READY_LIMIT_S)] if reasons is None else reasons)

    async def _ask(
        self, question: Callable[[], Sequence[NotReady]], limit_s: float
    ) -> Sequence[NotReady] | None:
        """Call a function on the loop of the process; None if the loop does not answer in time."""

        async def ask() -> Sequence[NotReady]:
            return question()

        assert self._loop is not None, "started before it listens"
        coroutine = ask()
        try:
            asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed: the process is about to end
            coroutine.close()
            return state_reasons(ServerState.STOPPING, self._program)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), limit_s)
        except TimeoutError:
            return None


def _held(limit_s: float) -> NotReady:
    return NotReady("loop_held", f"the event loop has not run for {limit_s:g} s")


def _answer(key: str, reasons: Sequence[NotReady]) -> HttpAnswer:
    body = {
        key: not reasons,
        "version": __version__,
        "reasons": [{"code": each.code, "message": each.message} for each in reasons],
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return HttpAnswer(status, orjson.dumps(body) + b"\n")
