"""How soon to ask again a broker that answers early, with nothing.

One that holds a question until there is something, or for as long as it was asked to, is asked
again at once. One that does not would be asked as fast as it answers, for ever.
"""

from typing import Final

SHORTEST_PAUSE_MS: Final = 20


class Fruitless:
    """Counts the answers of one broker, one after the other, that brought nothing.

    Args:
        held_ms: how long the broker was asked to hold a question.
        longest_ms: no pause is longer.
    """

    __slots__ = ("_count", "_longest_ms")

    def __init__(self, held_ms: int, longest_ms: int) -> None:
        self._count = 0
        self._longest_ms = max(SHORTEST_PAUSE_MS, min(held_ms, longest_ms))

    def pause_ms(self, *, is_fruitless: bool, spent_ms: int) -> int:
        """Return how long to wait before the next question.

        Args:
            is_fruitless: the answer has brought nothing.
            spent_ms: how long it took.
        """
        if not is_fruitless:
            self._count = 0
            return 0
        pause_ms = min(SHORTEST_PAUSE_MS << min(self._count, 16), self._longest_ms)
        self._count += 1
        return max(0, pause_ms - spent_ms)
