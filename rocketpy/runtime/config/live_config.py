"""Settings that change at run time, and the file that stores the changes for the next start.

A remote change is written to this file before it takes effect; the user's configuration file is
never changed. At the next start the stored values take precedence over the configuration file, but
not over environment and command line (docs/decisions/0003-live-configuration.md).
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import ConfigSet, Sources, load
from rocketpy.runtime.config.properties_file import format_properties, read_properties

LIVE_FILE_NAME: Final = "live.properties"
_HEAD: Final = "# Written by the server: settings changed while it ran. Delete a line to undo it.\n"


class LiveSettings:
    """File of changed settings, for one writer at a time.

    Args:
        path: the file; it may be missing.
        read: returns the content of a file, or raises FileNotFoundError.
        replace: replaces the content atomically and durably.
    """

    def __init__(
        self,
        path: Path,
        *,
        read: Callable[[Path], bytes] | None = None,
        replace: Callable[[Path, bytes], None] | None = None,
    ) -> None:
        self._path = path
        self._read = read or Path.read_bytes
        self._replace = replace or replace_file

    def load(self) -> dict[str, str]:
        """Return the changed settings, key to text; empty without a file.

        Raises:
            ConfigError: the file is not properties text.
        """
        try:
            data = self._read(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return read_properties(data, source=str(self._path))

    def add(self, changes: Mapping[str, str]) -> None:
        """Add changes to the file.

        Raises:
            OSError: the file cannot be written; the old one is unchanged.
            DiskFullError: the same, for lack of space.
        """
        text = _HEAD + format_properties({**self.load(), **changes})
        self._replace(self._path, text.encode())


def load_with_live_file(
    sources: Sources,
    classes: Sequence[type],
    path_of: Callable[[ConfigSet], Path],
    *,
    elsewhere: Iterable[str] = (),
) -> ConfigSet:
    """Load a configuration, with the changes at run time on top of its file.

    Args:
        sources: file, environment, command line.
        classes: the dataclasses to fill.
        path_of: returns the path of the live file for a configuration.
        elsewhere: more known keys, which other servers of the process read.

    Raises:
        ConfigError: an invalid value, or the live file cannot be read.
    """
    others = frozenset(elsewhere)
    path = path_of(load(sources, classes, elsewhere=others))
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        text = ""  # users of the directory report its errors
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the live settings: {error}", source=str(path)) from error
    live = replace(sources, live_text=text, live_name=str(path))
    return load(live, classes, elsewhere=others)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically: write beside, sync, rename, sync.

    Raises:
        OSError: it cannot be written; the old content is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


T = TypeVar("T")
U = TypeVar("U")


class LiveConfig(Generic[T]):
    """Current configurations of a server and its parts; thread-safe.

    Args:
        config: the server's configuration, a dataclass.
        parts: further configurations with live keys.
        live: file for accepted changes; None: changes are not stored.

    Attributes:
        current: the server's configuration; do not cache it.
        changed_keys: those of the last change, for listeners.
    """

    def __init__(
        self,
        config: T,
        *parts: Any,  # noqa: ANN401 - dataclasses of any kind
        live: LiveSettings | None = None,
    ) -> None:
        self.current: T = config
        self.changed_keys: frozenset[str] = frozenset()
        self._class: type[T] = type(config)
        self._all = ConfigSet.of(config, *parts)  # type: ignore[arg-type] # a dataclass
        self._live = live
        self._lock = threading.Lock()
        self._checks: list[Callable[[ConfigSet], object]] = []
        self._listeners: list[Callable[[T], None]] = []

    @property
    def live_keys(self) -> frozenset[str]:
        """The keys that may change at run time."""
        return self._all.live_keys()

    def get(self, config_class: type[U]) -> U:
        """Return the current configuration of a part; do not cache it."""
        return self._all.get(config_class)

    def as_properties(self) -> str:
        """Return all current values as sorted `key=value` lines, secrets hidden."""
        return self._all.as_properties()

    def add_check(self, check: Callable[[ConfigSet], object]) -> None:
        """Call `check` with the settings of each change, before it; it may raise ConfigError."""
        self._checks.append(check)

    def add_listener(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the server's new configuration after each change."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change settings, and store those that last; an invalid change changes none.

        Args:
            changes: key to text.

        Raises:
            ConfigError: a key is unknown or must not change at run time, or a value is invalid.
            OSError: the changes cannot be stored; nothing was changed.
            DiskFullError: the same, for lack of space.
        """
        with self._lock:
            updated = self._all.updated(changes)
            for check in self._checks:
                check(updated)
            stored_keys = self._all.stored_keys()
            stored = {key: text for key, text in changes.items() if key in stored_keys}
            if self._live is not None and stored:
                self._live.add(stored)
            self._all = updated
            self.current = updated.get(self._class)
            self.changed_keys = frozenset(changes)
        for listener in self._listeners:
            listener(self.current)
