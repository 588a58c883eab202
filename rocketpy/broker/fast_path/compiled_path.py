"""The compiled path of plain sends: whether there is one, and what it asks Python.

`_plain_sends` (Cython) serves plain sends at the start of received bytes in one call. It is
optional: without it, or with ROCKETPY_PURE=1 in the environment, Python serves everything, with the
same responses and the same bytes on disk; ROCKETPY_COMPILED=1 makes its absence an error.
docs/decisions/0008 says why and what it takes.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from rocketpy.broker.fast_path.pull_service import FastPullService, PullPlan
from rocketpy.broker.feature import BulkParticipant, DueMessageWriter
from rocketpy.broker.processor.send_response import PlainSendRules
from rocketpy.compiled_module import load_compiled
from rocketpy.errors import StartError
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.store.append.direct_append import DirectAppend

_MODULE: Final = "rocketpy.broker.fast_path._plain_sends"


class KnowsRules(Protocol):
    """Says what the rules are now."""

    plain_rules: PlainSendRules


class CompiledPath(DueMessageWriter, Protocol):
    """The compiled path: a `ByteHandler`, with its `LookAhead`, and what is due."""

    def __call__(self, channel: Channel, data: bytes, /) -> tuple[int, bytes]:
        """See `rocketpy.remoting.connection.dispatch.ByteHandler`."""
        ...

    def look_ahead(self, data: bytes, /) -> int:
        """See `rocketpy.remoting.connection.dispatch.LookAhead`."""
        ...

    def answer(self, known: PullPlan, queue_offset: int, opaque: int, kind: int, /) -> bytes | None:
        """See `rocketpy.broker.fast_path.pull_service.AnswersPull`."""
        ...


MakeHandler: TypeAlias = Callable[
    [KnowsRules, DirectAppend, int, BulkParticipant, FastPullService | None], CompiledPath
]
"""Of the rules, where records are written, the limit of a frame in bytes, who takes part in halves
and commits, and who begins and ends pulls; None takes no pulls."""


def compiled_sends() -> MakeHandler | None:
    """Return what makes a handler of received bytes; None when it is not there or not wanted.

    Raises:
        StartError: it is not there and ROCKETPY_COMPILED=1 says that it must be.
    """
    try:
        module = load_compiled(_MODULE)
    except ImportError as error:
        raise StartError(
            "ROCKETPY_COMPILED=1 asks for compiled sends, which this installation does not "
            f"have ({error}); install RocketPy where there is a C compiler, or unset it"
        ) from error
    if module is None:
        return None
    make: MakeHandler = module.PlainSends
    return make


def is_compiled() -> bool:
    """Whether the compiled path is there and wanted."""
    return compiled_sends() is not None


def send_path(pool: BusinessPool | None) -> str:
    """Return what serves plain sends: ``compiled`` or ``python``.

    Args:
        pool: of sends; one with threads takes requests, not bytes.
    """
    is_inline = pool is None or pool.runs_inline
    return "compiled" if is_inline and is_compiled() else "python"
