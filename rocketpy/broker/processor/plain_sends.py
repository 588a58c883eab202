"""The compiled path of plain sends: whether there is one, and what it asks Python.

`_plain_sends` (Cython) serves plain sends at the start of received bytes in one call. It is
optional: without it, or with ROCKETPY_PURE=1 in the environment, Python serves everything, with the
same responses and the same bytes on disk; ROCKETPY_COMPILED=1 makes its absence an error.
docs/decisions/0008 says why and what it takes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.broker.operation.part_in_runs import PartInRuns, StoresDue
from rocketpy.broker.operation.send_admission import TopicSendPolicy
from rocketpy.broker.processor.pull_runs import KnownPull, PullRuns
from rocketpy.compiled_module import load_compiled
from rocketpy.errors import StartError
from rocketpy.remoting.business import BusinessPool
from rocketpy.remoting.channel import Channel
from rocketpy.store.direct_append import DirectAppend

_MODULE: Final = "rocketpy.broker.processor._plain_sends"


class PlainSendRules(NamedTuple):
    """What is worked out once, in Python, for every plain send; replaced when settings change.

    Attributes:
        known: policies of the topics that were sent to.
        count_stored: told topic, messages and bytes of what was stored.
        special_properties: a message with one of these is not plain.
        own_properties: added to each message, encoded.
        max_body_bytes: limit of a body.
        json_parts: a response's JSON header around code, physical offset (16 hexadecimal digits),
            queue id, queue offset, UNIQ_KEY and opaque.
        binary_parts: the same of a ROCKETMQ header: before opaque, up to the length of the ext
            fields, then before physical offset, queue id, queue offset and UNIQ_KEY, the last three
            as text behind its length.
        msgpack_parts: the same of a MSGPACK header: before opaque, physical offset, queue id, queue
            offset and UNIQ_KEY.
        batch_msgpack_parts: the same for a batch, before all message ids instead of the offset.
        answer_later: has responses sent when the disk has the log up to an offset: to the channel,
            the offset, their bytes, and opaque and header type of each request.
        next_id: what stands before the physical offset of a batch's second message.
        delays_ms: how long the delay levels wait, level 1 first.
    """

    known: Mapping[str, TopicSendPolicy]
    count_stored: Callable[[str, int, int], None]
    special_properties: frozenset[str]
    own_properties: bytes
    max_body_bytes: int
    json_parts: tuple[bytes, ...]
    binary_parts: tuple[bytes, ...]
    msgpack_parts: tuple[bytes, ...]
    batch_msgpack_parts: tuple[bytes, ...]
    next_id: bytes
    delays_ms: tuple[int, ...]
    answer_later: Callable[[Channel, int, bytes, Sequence[tuple[int, int]]], None]


class KnowsRules(Protocol):
    """Says what the rules are now."""

    plain_rules: PlainSendRules


class ServesPlainSends(StoresDue, Protocol):
    """The compiled path: a `ByteHandler`, with its `LookAhead`, and what is due."""

    def __call__(self, channel: Channel, data: bytes, /) -> tuple[int, bytes]:
        """See `rocketpy.remoting.dispatch.ByteHandler`."""
        ...

    def look_ahead(self, data: bytes, /) -> int:
        """See `rocketpy.remoting.dispatch.LookAhead`."""
        ...

    def answer(
        self, known: KnownPull, queue_offset: int, opaque: int, kind: int, /
    ) -> bytes | None:
        """See `rocketpy.broker.processor.pull_runs.AnswersPull`."""
        ...


MakeHandler: TypeAlias = Callable[
    [KnowsRules, DirectAppend, int, PartInRuns, PullRuns | None], ServesPlainSends
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
