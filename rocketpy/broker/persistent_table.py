"""What the tables of topics and groups share: a lock, a version, and a file written as a whole."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rocketpy.broker.document import DataVersion, JsonDocument
from rocketpy.proto.json_body import Body
from rocketpy.runtime.clock import Clock
from rocketpy.store.json_file import UnchangingJson


class PersistentTable:
    """A table of named entries in one JSON file, written with each change.

    Whoever derives from it changes its entries under `_lock` and calls `_changed` then.
    """

    def __init__(self, file: JsonDocument, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        self._version = DataVersion(clock.time_ms())
        self._is_gathering = False
        self._is_unwritten = False
        self._documents: dict[str, tuple[Body, UnchangingJson]] = {}

    def persist(self) -> None:
        """Write the file."""
        with self._lock:
            self._save()

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Keep others from changing the table, and write its file once for all changes inside."""
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                if self._is_unwritten:
                    self._save()

    @property
    def data_version(self) -> dict[str, int]:
        """The table's DataVersion as JSON."""
        return self._version.to_json()

    def _content(self) -> dict[str, Any]:
        """Return what the file holds."""
        raise AssertionError("a table says what its file holds")

    def _changed(self) -> None:
        """Count a change and write the file."""
        self._version.bump(self._clock)
        self._save()

    def _save(self) -> None:
        self._is_unwritten = self._is_gathering
        if not self._is_gathering:
            self._file.save(self._content())

    def _document(self, name: str, entry: Body) -> UnchangingJson:
        """Return an entry as it is written; made once, for the file is written with each change."""
        known = self._documents.get(name)
        if known is None or known[0] is not entry:
            known = self._documents[name] = entry, UnchangingJson(entry.to_json())
        return known[1]
