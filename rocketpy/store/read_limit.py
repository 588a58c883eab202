"""How much one read of a queue returns."""

from typing import Final, NamedTuple, Self

_MAX_RESULT_BYTES: Final = 128 << 20


class ReadLimit(NamedTuple):
    """How much one read returns.

    Attributes:
        messages: at most.
        size_bytes: of them, at most.
    """

    messages: int
    size_bytes: int

    def within(self, allowed: Self) -> "ReadLimit":
        """Return what remains of it where no more than another one is allowed."""
        messages, most = min(self[0], allowed[0]), min(self[1], allowed[1], _MAX_RESULT_BYTES)
        return ReadLimit(messages, most)
