"""The settings in force, and the one door through which they change while a server runs.

Settings that were changed while running, kept for the next start in a file of their own.

A remote change is written here before it takes effect: the file a person wrote is never touched.
At the next start its values count more than that file's and less than environment and command
line. Decision: docs/decisions/0003-live-configuration.md.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import ConfigSet, Sources, load
from rocketpy.runtime.config.properties_file import format_properties, read_properties

LIVE_FILE_NAME: Final = "live.properties"
_HEAD: Final = "# Written by the server: settings changed while it ran. Delete a line to undo it.\n"


class LiveSettings:
    """The file of changed settings; one writer at a time.

    Args:
        path: the file; it need not exist.
        read: the content of a file, or FileNotFoundError.
        replace: puts a new content into place as a whole and on disk.
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
        """Return what was changed, key to text; empty without a file.

        Raises:
            ConfigError: the file is not properties text.
        """
        try:
            data = self._read(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return read_properties(data, source=str(self._path))

    def add(self, changes: Mapping[str, str]) -> None:
        """Write more changes beside those that are there.

        Raises:
            OSError: the file cannot be written; the one before is untouched.
            DiskFullError: the same, for lack of space.
        """
        text = _HEAD + format_properties({**self.load(), **changes})
        self._replace(self._path, text.encode())


def load_with_live_file(
    sources: Sources, classes: Sequence[type], path_of: Callable[[ConfigSet], Path]
) -> ConfigSet:
    """Load a configuration and, on top of its file, what was changed while running.

    Args:
        sources: file, environment, command line.
        classes: the dataclasses to fill.
        path_of: where the live file of a configuration is.

    Raises:
        ConfigError: a value that does not fit, or a live file that cannot be read.
    """
    path = path_of(load(sources, classes))
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        text = ""  # what is wrong with the directory is said by those who need it
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the live settings: {error}", source=str(path)) from error
    return load(replace(sources, live_text=text, live_name=str(path)), classes)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file as a whole: written beside, synced, renamed, synced.

    Raises:
        OSError: it cannot be written; the old content is untouched.
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
    """Holds a server's own configuration and those of its parts; safe from any thread.

    Args:
        config: the server's own configuration, a dataclass.
        parts: more of them, whose keys may be changed in the same way.
        live: where accepted changes are kept for the next start; None keeps none.

    Attributes:
        current: the server's own configuration; read it afresh each time.
    """

    def __init__(
        self,
        config: T,
        *parts: Any,  # noqa: ANN401 - dataclasses of any kind
        live: LiveSettings | None = None,
    ) -> None:
        self.current: T = config
        self._class: type[T] = type(config)
        self._all = ConfigSet.of(config, *parts)  # type: ignore[arg-type] # a dataclass
        self._live = live
        self._lock = threading.Lock()
        self._listeners: list[Callable[[T], None]] = []

    @property
    def live_keys(self) -> frozenset[str]:
        """The keys that may change while running."""
        return self._all.live_keys()

    def get(self, config_class: type[U]) -> U:
        """Return the configuration of a part; read it afresh each time."""
        return self._all.get(config_class)

    def as_properties(self) -> str:
        """Return everything in force as sorted ``key=value`` lines, secrets hidden."""
        return self._all.as_properties()

    def add_listener(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the server's new configuration after each change."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change settings: all of them, or none; they are kept for the next start.

        Args:
            changes: key to text.

        Raises:
            ConfigError: a key is unknown or may not change at run time, or a value does not fit.
            OSError: the changes cannot be kept; nothing changed then.
            DiskFullError: the same, for lack of space.
        """
        with self._lock:
            updated = self._all.updated(changes)
            if self._live is not None:
                self._live.add(changes)
            self._all = updated
            self.current = updated.get(self._class)
        for listener in self._listeners:
            listener(self.current)
