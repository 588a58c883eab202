"""Loader of the compiled path of sends and pulls, and its interface to Python.

`_plain_sends` (Cython) serves fast-path eligible requests at the start of received bytes in one
call. It is optional: without it, or with ROCKETPY_PURE=1 in the environment, Python serves all
requests, with the same responses and the same bytes on disk. ROCKETPY_COMPILED=1 makes its absence
an error. docs/decisions/0008 contains the reasons and the cost.
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
    """Interface of the owner of the current rules."""

    plain_rules: PlainSendRules


class CompiledPath(DueMessageWriter, Protocol):
    """Interface of the compiled path: a `ByteHandler` with `LookAhead`, and the bulk writer."""

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
"""Arguments: the rules, the writer of records, the limit of a frame in bytes, the bulk handling of
transactions, and the service of fast pulls; None serves no pulls."""


def compiled_sends() -> MakeHandler | None:
    """Return the constructor of the compiled path; None when it is missing or disabled.

    Raises:
        StartError: it is missing, and ROCKETPY_COMPILED=1 requires it.
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
    """Return whether the compiled path is available and enabled."""
    return compiled_sends() is not None


def send_path(pool: BusinessPool | None) -> str:
    """Return the path of fast-path eligible sends: `compiled` or `python`.

    Args:
        pool: pool of sends; with threads it takes requests, not bytes.
    """
    is_inline = pool is None or pool.runs_inline
    return "compiled" if is_inline and is_compiled() else "python"
