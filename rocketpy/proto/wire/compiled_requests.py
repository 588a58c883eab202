"""Compiled codec of the client's sends: encodes requests and decodes responses.

The reference in Python takes its place without the compiled module: `request_template` for requests,
`frame` and the client's decoding of a send's response for responses
(docs/decisions/0010-a-compiled-codec-for-sends.md).
"""

from typing import Final, Protocol, TypeAlias

from rocketpy.compiled_module import load_compiled

_MODULE: Final = "rocketpy.proto.wire._sends"

StoredAnswer: TypeAlias = tuple[int, int, int, int, str, str | None, str, str | None]
"""The answer to a send that is stored: opaque, where its frame ends, queue id, queue offset, offset
id, transaction id, region, recall handle."""


class CompiledSends(Protocol):
    """The module's functions; `_sends.pyx` says what they do."""

    def frame(
        self,
        kind: int,
        parts: tuple[bytes, bytes, bytes, bytes],
        opaque: int,
        time_ms: int,
        text: str,
        body: bytes,
    ) -> bytes | None:
        """Draw a request; None leaves it to the reference."""
        ...

    def read_answers(self, data: bytes, most_frame_bytes: int) -> tuple[int, list[StoredAnswer]]:
        """Read the answers to sends that lead received bytes; return how many bytes they have."""
        ...


def compiled_sends() -> CompiledSends | None:
    """Return the compiled functions; None when they are not there or not wanted.

    Raises:
        ImportError: they are not there and ROCKETPY_COMPILED=1 says that they must be.
    """
    found: CompiledSends | None = load_compiled(_MODULE)
    return found
