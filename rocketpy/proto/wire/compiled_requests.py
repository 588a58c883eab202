"""Loads the compiled codec of a client's sends: encodes requests, decodes responses.

Where RocketPy is pure, the reference replaces it: `request_template` for requests, `frame` and the
client's decoding of send responses (docs/decisions/0010-a-compiled-codec-for-sends.md).
"""

from typing import Final, Protocol, TypeAlias

from rocketpy.compiled_module import load_compiled

_MODULE: Final = "rocketpy.proto.wire._sends"

StoredAnswer: TypeAlias = tuple[int, int, int, int, str, str | None, str, str | None]
"""Response to a stored send: opaque, end of its frame, queue id, queue offset, offset id,
transaction id, region, recall handle."""


class CompiledSends(Protocol):
    """Interface of the compiled module; `_sends.pyx` documents its functions."""

    def frame(
        self,
        kind: int,
        parts: tuple[bytes, bytes, bytes, bytes],
        opaque: int,
        time_ms: int,
        text: str,
        body: bytes,
    ) -> bytes | None:
        """Encode a request; None falls back to the reference."""
        ...

    def read_answers(self, data: bytes, most_frame_bytes: int) -> tuple[int, list[StoredAnswer]]:
        """Decode send responses at the start of received bytes; return their length."""
        ...


def compiled_sends() -> CompiledSends | None:
    """Return the compiled functions; None when they are not installed or are disabled.

    Raises:
        ImportError: they are not installed, and ROCKETPY_COMPILED=1 requires them.
    """
    found: CompiledSends | None = load_compiled(_MODULE)
    return found
