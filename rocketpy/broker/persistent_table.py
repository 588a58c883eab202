"""What the tables of topics and groups share: a lock, a version, and a file written as a whole."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from rocketpy.broker.document import DataVersion, JsonDocument
from rocketpy.proto.json_body import Body
from rocketpy.runtime.clock import Clock
from rocketpy.store.json_file import UnchangingEntries, UnchangingJson

E = TypeVar("E", bound=Body)


class PersistentTable(ABC, Generic[E]):
    """A table of named entries in one JSON file; safe from any thread, reads take no lock.

    The file is written with each change, and nobody sees the change before: who is told that a
    topic or group is there may count on it after a kill. When the file cannot be written the
    change did not happen, and whoever wanted it tries again.

    Attributes:
        entries: what everybody sees; replaced as a whole, never changed.
    """

    def __init__(self, file: JsonDocument, clock: Clock, entries: Mapping[str, E]) -> None:
        self.entries: Mapping[str, E] = dict(entries)
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        self._version = DataVersion(clock.time_ms())
        self._depth = 0
        self._draft: dict[str, E] | None = None
        self._to_tell: list[Callable[[], None]] = []
        self._documents: dict[str, tuple[Body, UnchangingJson]] = {}

    def persist(self) -> None:
        """Write the file.

        Raises:
            StoreError: it cannot be written.
        """
        with self._lock:
            self._file.save(self._content(self.entries))

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Keep others from changing the table, and write its file once for all changes inside.

        Raises:
            StoreError: the file cannot be written; nothing changed then.
        """
        told: list[Callable[[], None]] = []
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    told = self._write_draft()
        for tell in told:
            tell()

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once the changes so far are on disk, if they come there; inside `one_write`."""
        assert self._depth, "nothing waits to be written"
        self._to_tell.append(callback)

    def current(self, name: str) -> E | None:
        """Return an entry as the next write will have it, or None; inside `one_write`."""
        return self._current().get(name)

    def _write_draft(self) -> list[Callable[[], None]]:
        draft, told = self._draft, self._to_tell
        self._draft, self._to_tell = None, []
        if draft is not None:
            self._version.bump(self._clock)
            try:
                self._file.save(self._content(draft))
            except BaseException:
                # Nobody would ask for those again that are not there after all.
                for name in draft.keys() - self.entries.keys():
                    self._documents.pop(name, None)
                raise
            self.entries = draft
        return told

    @property
    def data_version(self) -> dict[str, int]:
        """The table's DataVersion as JSON."""
        return self._version.to_json()

    def renew_version(self) -> None:
        """Make another version of the same content, for who took the last one over in part."""
        with self._lock:
            self._version.bump(self._clock)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, E]]:
        """Change the entries that are yielded: a copy that takes their place once it is on disk."""
        with self.one_write():
            if self._draft is None:
                self._draft = dict(self.entries)
            yield self._draft

    def _current(self) -> Mapping[str, E]:
        """The entries with the changes so far; under the lock."""
        return self.entries if self._draft is None else self._draft

    @abstractmethod
    def _content(self, entries: Mapping[str, E]) -> dict[str, Any]:
        """Return what the file holds."""

    def _table(self, entries: Mapping[str, E]) -> UnchangingEntries:
        """Return the entries as they are written; made once each, for all are written each time."""
        documents = self._documents
        table = UnchangingEntries()
        for name, entry in entries.items():
            known = documents.get(name)
            if known is None or known[0] is not entry:
                known = documents[name] = entry, UnchangingJson(entry.to_json())
            table[name] = known[1]
        return table
