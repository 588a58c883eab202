"""What has a life: it may start, and it closes; `async with` does both."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closes(ABC):
    """Is closed at the end of its `async with` block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Finish what is in hand and close; a second call does nothing."""


class StartsAndCloses(Closes):
    """Starts with its `async with` block, too."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @abstractmethod
    async def start(self) -> None:
        """Begin to work."""
