"""Named values in namespaces, stored in one JSON file.

The file has Apache's form, `{"configTable":{namespace:{key:value}}}`, and is replaced atomically
with every change: written beside, synced, renamed. Its path is taken only from the configuration
at start, never from a request.

Source: KVConfigManager (5.4.0)
"""

import threading
from pathlib import Path
from typing import Final

import orjson

from rocketpy.errors import StartError
from rocketpy.runtime.config.live_config import replace_file

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

_MAX_NAME_CHARS: Final = 512
_MAX_VALUE_CHARS: Final = 65_536
_MAX_FILE_BYTES: Final = 8 * 1024 * 1024


class KvConfig:
    """Thread-safe table of the values.

    Args:
        path: the file; its directory is created by the first change.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; without a file the table is empty.

        Raises:
            StartError: the file cannot be read, or is damaged.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"cannot read {self._path}: {error.strerror}") from error
        if not data.strip():
            return
        table = _decode(data)
        if table is None:
            raise StartError(
                f"{self._path} is damaged: expected a JSON object with configTable; "
                "repair or remove it"
            )
        self._table = table

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None."""
        with self._lock:
            return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of a namespace; None if it does not exist."""
        with self._lock:
            found = self._table.get(namespace)
            return None if found is None else dict(found)

    def put(self, namespace: str, key: str, value: str, *, max_entries: int) -> str | None:
        """Set one value and write the file.

        Args:
            namespace: 1 to 512 characters.
            key: 1 to 512 characters.
            value: at most 64 Ki characters.
            max_entries: limit of all values.

        Returns:
            None, or the reason for the rejection.

        Raises:
            OSError: the file cannot be written; the value was not set.
        """
        if not (0 < len(namespace) <= _MAX_NAME_CHARS and 0 < len(key) <= _MAX_NAME_CHARS):
            return f"namespace and key must have 1 to {_MAX_NAME_CHARS} characters"
        if len(value) > _MAX_VALUE_CHARS:
            return f"the value has more than {_MAX_VALUE_CHARS} characters"
        with self._lock:
            is_new = key not in self._table.get(namespace, {})
            if is_new and sum(map(len, self._table.values())) >= max_entries:
                return f"there are {max_entries} values already"
            changed = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
            data = _encode(changed)
            if len(data) > _MAX_FILE_BYTES:
                return f"the values would take more than {_MAX_FILE_BYTES} bytes"
            self._replace(changed, data)
        return None

    def delete(self, namespace: str, key: str) -> bool:
        """Remove one value and write the file.

        Returns:
            Whether it existed.

        Raises:
            OSError: the file cannot be written; the value was not removed.
        """
        with self._lock:
            if key not in self._table.get(namespace, {}):
                return False
            kept = {name: value for name, value in self._table[namespace].items() if name != key}
            changed = {**self._table, namespace: kept}
            self._replace(changed, _encode(changed))
        return True

    def _replace(self, table: dict[str, dict[str, str]], data: bytes) -> None:
        """Write the file, then replace the table; called under the lock."""
        replace_file(self._path, data)
        self._table = table


def _encode(table: dict[str, dict[str, str]]) -> bytes:
    return orjson.dumps({"configTable": table}, option=orjson.OPT_SORT_KEYS)


def _decode(data: bytes) -> dict[str, dict[str, str]] | None:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    table = document.get("configTable", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        return None
    for values in table.values():
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            return None
    return table
