"""Identity of a log: a random id that a master and its slaves share.

The master makes it when it opens its store for the first time, and a new one when it starts with an
empty log in place of a lost one. Two logs with different ids are never copied over each other, even
if they happen to have equal samples, as two empty ones.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from rocketpy.errors import ResourceShortError
from rocketpy.store.files.json_file import JsonFile
from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

IDENTITY_FILE = "logIdentity.json"
"""Name of the file below `config`."""
_FIELD = "id"
_MOST_CHARS = 128


class LogIdentity:
    """Identity of one store's log, kept in `config/logIdentity.json`.

    Attributes:
        text: the id; empty if there is none.
    """

    def __init__(self, root: Path, files: StoreFiles, new_id: Callable[[], str]) -> None:
        """Build the path of the file; `load` reads it.

        Args:
            root: the store directory.
            files: the file system.
            new_id: returns a random id.
        """
        self._file = JsonFile(root / "config" / IDENTITY_FILE, files)
        self._new_id = new_id
        self.text: str = ""

    def load(self) -> None:
        """Read the file, if it exists."""
        self.text = identity_in(self._file.load())

    def open(self, *, is_slave: bool, is_copy: bool, is_other: bool) -> None:
        """Read the file, and give the log of a master an id where it needs one.

        Args:
            is_slave: a slave takes the id of its master.
            is_copy: with a controller, a log without an id was copied from a master that names
                none. An id that two of its replicas made would separate them.
            is_other: an empty log in place of a lost one is another log. With a controller an
                empty log keeps its id: replicas agree on it before the first message.
        """
        self.load()
        if not is_slave and (is_other or not (self.text or is_copy)):
            self.make()

    def make(self) -> None:
        """Write a new id; without space for it the log has none until the next start."""
        try:
            self.adopt(self._new_id())
        except (ResourceShortError, OSError) as error:
            # Not an error of the start: a store without an identity still serves its clients.
            logger.error("log identity not written: error=%s", error)  # noqa: TRY400 - known cause

    def adopt(self, text: str) -> None:
        """Write the id of another store whose log this one copies.

        Args:
            text: 1 to 128 printable ASCII characters.

        Raises:
            ValueError: the text is not an id.
            DiskFullError: no space; the old id stays.
            OSError: the disk failed.
        """
        if not is_identity(text):
            raise ValueError(f"{text[:_MOST_CHARS]!r} is not the identity of a log")
        if text != self.text:
            self._file.save({_FIELD: text})
            self.text = text
            logger.info("log identity set: id=%s", text)


def is_identity(text: str) -> bool:
    """Return whether a text can be the identity of a log."""
    return 0 < len(text) <= _MOST_CHARS and text.isascii() and text.isprintable()


def identity_in(content: object) -> str:
    """Return the identity in the parsed file; empty if there is none."""
    text = content.get(_FIELD) if isinstance(content, dict) else None
    return text if isinstance(text, str) and is_identity(text) else ""
