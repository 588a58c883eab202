"""Base class of the tables of topics and groups: a lock, a version, and a file written as a whole.

A change has two stages. It is *seen* when the changed entries replace those before: from then on
the broker works with it. It is *settled* when the file contains it, or cannot contain it: only then
are callers notified, and only threads that may block wait for that (`docs/decisions/0004`).

`TableWriter` is the thread that writes changed tables, so that no event loop waits for the disk. It
writes all changes so far at once, and changes made meanwhile with the next write: a slow disk means
more changes per write, not more writes.

Source: ConfigManager.persist (5.4.0), which each thread that changes a table calls itself.
"""

import logging
import threading
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

from rocketpy.broker.metadata.json_document import DataVersion, JsonDocument
from rocketpy.proto.wire.json_body import Body
from rocketpy.runtime.clock import Clock
from rocketpy.store.files.json_file import UnchangingEntries, UnchangingJson

_log = logging.getLogger(__name__)

E = TypeVar("E", bound=Body)
Settled: TypeAlias = Callable[[Exception | None], None]
"""Called once, on any thread, with None, or with why the file was not written (and undone)."""


class _Write(NamedTuple, Generic[E]):
    """Write of the file, in progress.

    Attributes:
        seen: entries that were visible when it started.
        entries: entries that it writes.
        leaving: deleted entries, which stay visible until the file lacks them.
        version: version of the written content.
        document: new content, its entries not yet as JSON; None when the file is up to date.
        callbacks: called after success.
        waiting: called after success or failure.
    """

    seen: Mapping[str, E]
    entries: Mapping[str, E]
    leaving: Mapping[str, E]
    version: DataVersion
    document: dict[str, Any] | None
    callbacks: list[Callable[[], None]]
    waiting: list[Settled]


class PersistentTable(ABC, Generic[E]):
    """A table of named entries in one JSON file; safe from any thread, reads take no lock.

    One write includes all changes so far, and the next one those made meanwhile. When the file
    cannot be written, all changes that are not in it are undone, and their callers are notified.

    The lock is never held while a file is written: changes with `write_soon` never wait for a disk.

    Attributes:
        entries: the visible entries; replaced as a whole, never changed, so readers need no lock.
        written: the entries in the file; replaced as a whole, never changed.
        on_change: called with the name of each entry whose visible value changed.
    """

    _table_key: ClassVar[str]
    """Name of the entries in the file."""

    def __init__(self, file: JsonDocument, clock: Clock, entries: Mapping[str, E]) -> None:
        self.entries: Mapping[str, E] = dict(entries)
        self.written: Mapping[str, E] = self.entries
        self.on_change: Callable[[str], None] | None = None
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        # One writer of the file at a time, so that no older content replaces a newer one.
        self._writing = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self._version = DataVersion(clock.time_ms())
        self._depth = 0
        self._draft: dict[str, E] | None = None
        self._leaving: dict[str, E] = {}
        self._touched: list[str] = []
        self._written_callbacks: list[Callable[[], None]] = []
        self._waiting: list[Settled] = []
        self._current_write: _Write[E] | None = None
        self._failure: Exception | None = None
        self._documents: dict[str, tuple[Body, UnchangingJson]] = {}

    def use_writer(self, wake: Callable[[], None]) -> None:
        """Let a service write changes of `write_soon`; without a service they are written at once.

        Args:
            wake: makes the service call `write` soon; callable on any thread.
        """
        self._wake = wake

    def persist(self) -> None:
        """Write the file.

        Raises:
            StoreError: it cannot be written.
        """
        failure = self._write(anyway=True)
        if failure is not None:
            raise failure

    def write(self) -> None:
        """Write pending changes, if any, and notify their callers.

        Blocks for the disk, and for a write in progress on another thread.
        """
        self._write(anyway=False)

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Block other changes, and wait at the end until all changes made inside are written.

        Raises:
            StoreError: the file cannot be written; the changes are undone.
        """
        outcomes: SimpleQueue[Exception | None] = SimpleQueue()
        waits = False
        try:
            with self._lock:
                is_outermost = self._depth == 0
                try:
                    with self._together():
                        yield
                finally:
                    if is_outermost and self._is_dirty:
                        waits = True
                        self._waiting.append(outcomes.put)
        finally:
            if waits:
                self.write()
        # Another thread may have written it and be about to report that.
        failure = outcomes.get() if waits else None
        if failure is not None:
            raise failure

    @contextmanager
    def write_soon(self) -> Iterator[None]:
        """Block other changes; those made inside are visible at the end, and written soon.

        Raises:
            StoreError: there is no service, and the file cannot be written.
        """
        if self._wake is None:
            with self.one_write():
                yield
            return
        try:
            with self._together():
                yield
        finally:
            if self._is_dirty:
                self._wake()

    @property
    def failure(self) -> Exception | None:
        """Why the last write failed; None when it succeeded."""
        return self._failure

    def is_written(self, name: str) -> bool:
        """Return whether the file has an entry of this name, perhaps before its last change."""
        return name in self.written

    def when_settled(self, names: Iterable[str], done: Settled) -> None:
        """Call back once the existing ones of these entries are written, or cannot be.

        Args:
            names: the entries. A failed write before this call may have removed one, so a caller
                that depends on an entry must check `is_written` in its callback.
            done: called once, perhaps at once, on any thread.
        """
        with self._lock:
            left = [name for name in names if name in self.entries and name not in self.written]
            if left:
                write = self._current_write
                if write is not None and all(name in write.entries for name in left):
                    write.waiting.append(done)
                    return
                self._waiting.append(done)
        if not left:
            done(None)
        elif self._wake is not None:
            self._wake()
        else:
            self.write()

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once the changes so far are on disk, if ever; inside `one_write`."""
        assert self._depth, "nothing waits to be written"
        self._written_callbacks.append(callback)

    def current(self, name: str) -> E | None:
        """Return an entry with the changes so far, or None; inside `one_write`."""
        return self._current().get(name)

    @property
    def data_version(self) -> dict[str, int]:
        """DataVersion of the written content, as JSON."""
        return self._version.to_json()

    def set_epoch(self, epoch: int) -> None:
        """Give the same content the version of a new master, which wins at the name servers."""
        with self._lock:
            self._version.state_version = epoch
            self._version.bump(self._clock)

    def renew_version(self) -> None:
        """Give the same content a new version, for a peer that received only a part of it."""
        with self._lock:
            self._version.bump(self._clock)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Make the changes inside visible together, at its end."""
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._draft is not None:
                    self.entries, self._draft = self._draft, None
                    touched, self._touched = self._touched, []
                    self._notify_changed(touched)

    @contextmanager
    def _changing(self, *names: str) -> Iterator[dict[str, E]]:
        """Change the named ones of the yielded entries; inside `one_write` or `write_soon`."""
        assert self._depth, "the change would never be visible"
        self._touched += names
        if self._draft is None:
            self._draft = dict(self.entries)
        yield self._draft

    def _delete_entry(self, name: str) -> E | None:
        """Delete an entry; it stays visible until the file lacks it. Inside `one_write`."""
        found = self._current().get(name)
        if found is not None:
            self._leaving[name] = found
        return found

    @property
    def _is_dirty(self) -> bool:
        """Whether there are changes to write."""
        return self.entries is not self.written or bool(self._leaving)

    def _current(self) -> Mapping[str, E]:
        """Return the entries with the changes so far; the lock is held."""
        return self.entries if self._draft is None else self._draft

    def _check_is_writable(self) -> None:
        """Write a file that could not be written last time, before new changes are added.

        Without this check, each send to a topic that cannot be created would store a message that
        is then not acknowledged. It is skipped where changes are made in one block, which holds
        the lock that a write needs: a heartbeat, which stores no message, and `one_write`, which
        waits for the write anyway.

        Raises:
            StoreError: the file still cannot be written.
        """
        if self._failure is None or self._wake is None or self._depth:
            return
        failure = self._write(anyway=True)
        if failure is not None:
            raise failure

    def _write(self, *, anyway: bool) -> Exception | None:
        """Write pending changes, and notify; returns why the file cannot be written."""
        with self._writing:
            write = self._begin(anyway=anyway)
            failure = None if write.document is None else self._save(write.document)
            callbacks = self._end(write, failure)
        calls: list[Callable[[], object]] = [*callbacks]
        calls += [partial(done, failure) for done in write.waiting]
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - a failing callback must not stop the others
                _log.exception("table callback failed: table=%s", self._table_key)
        return failure

    def _begin(self, *, anyway: bool) -> "_Write[E]":
        """Start a write with all changes so far."""
        with self._lock:
            is_changed = self._is_dirty
            seen = entries = self.entries
            leaving, self._leaving = self._leaving, {}
            if leaving:
                entries = {
                    name: entry for name, entry in seen.items() if leaving.get(name) is not entry
                }
            version = self._version.next(self._clock) if is_changed else self._version
            document = None
            if is_changed or anyway:
                document = {
                    "dataVersion": version.to_json(),
                    **self._beside(),
                    self._table_key: entries,
                }
            callbacks, self._written_callbacks = self._written_callbacks, []
            waiting, self._waiting = self._waiting, []
            self._current_write = _Write(
                seen, entries, leaving, version, document, callbacks, waiting
            )
            return self._current_write

    def _save(self, document: dict[str, Any]) -> Exception | None:
        try:
            self._file.save({**document, self._table_key: self._table(document[self._table_key])})
        except Exception as error:  # noqa: BLE001 - whatever it is, all callers are notified
            return error
        return None

    def _end(self, write: "_Write[E]", failure: Exception | None) -> list[Callable[[], None]]:
        """Record the outcome of a write; returns the callbacks for success."""
        with self._lock:
            self._current_write = None
            if write.document is not None:
                self._failure = failure
            if failure is not None:
                write.waiting.extend(self._waiting)
                self._waiting, self._written_callbacks, self._leaving = [], [], {}
                self._undo(failure)
                return []
            is_changed, self.written = write.entries is not self.written, write.entries
            self._remove_deleted(write)
            if is_changed:
                # After the entries: a reader that gets the new version first has at least its
                # content then. The version may have been renewed meanwhile.
                write.version.counter = max(write.version.counter, self._version.counter + 1)
                self._version = write.version
            if write.document is not None:
                self._wrote()
        return write.callbacks

    def _remove_deleted(self, write: "_Write[E]") -> None:
        """Remove deleted entries after a write, unless they were added again meanwhile."""
        now = self.entries
        gone = {name for name, entry in write.leaving.items() if now.get(name) is entry}
        if now is write.seen:
            self.entries = self.written
        elif gone:
            self.entries = {name: entry for name, entry in now.items() if name not in gone}
        self._notify_changed(gone)

    def _undo(self, failure: Exception) -> None:
        """Restore the content of the file, because later changes cannot be written."""
        before, kept = self.entries, self._undone(failure)
        if before is self.written:
            return
        # A new mapping, so that threads which saw the undone one notice another change.
        self.written = dict(self.written)
        now = self.entries = {**self.written, **kept} if kept else self.written
        for name in self._documents.keys() - now.keys():
            # The cached JSON of undone entries would never be freed.
            del self._documents[name]
        self._notify_changed(
            [name for name in {**before, **now} if before.get(name) is not now.get(name)]
        )

    def _notify_changed(self, changed: Iterable[str]) -> None:
        if self.on_change is not None:
            for name in changed:
                self.on_change(name)

    def _beside(self) -> dict[str, Any]:
        """Return further fields of the file; a subclass replaces values as a whole."""
        return {}

    def _wrote(self) -> None:
        """Note that the file contains the last result of `_beside`."""

    def _undone(self, failure: Exception) -> Mapping[str, E]:  # noqa: ARG002 - for subclasses
        """Undo changes beside the entries; returns unwritten entries that stay all the same."""
        return {}

    def _table(self, entries: Mapping[str, E]) -> UnchangingEntries:
        """Return the entries as JSON; cached, because each write contains all of them."""
        documents = self._documents
        table = UnchangingEntries()
        for name, entry in entries.items():
            known = documents.get(name)
            if known is None or known[0] is not entry:
                known = documents[name] = entry, UnchangingJson(entry.to_json())
            table[name] = known[1]
        if len(documents) > len(table):
            self._documents = {name: documents[name] for name in table}
        return table


_IDLE_MS: Final = 3_600_000


class TableWriter:
    """Background service that writes changed tables.

    Args:
        tables: the tables, in the order of their writes.
    """

    name = "TableWriter"

    def __init__(self, *tables: PersistentTable[Any]) -> None:
        self._tables = tables

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Start writing the tables' changes; see `rocketpy.runtime.service.WokenService`."""
        for table in self._tables:
            table.use_writer(wake)

    def step(self, now_ms: int) -> int:
        """Write changed tables; see `rocketpy.runtime.service.Service.step`."""
        for table in self._tables:
            table.write()
        return now_ms + _IDLE_MS
