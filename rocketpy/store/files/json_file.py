"""JSON configuration files in Apache's format, with a backup that is complete at all times.

A file has a sibling `<name>.bak` with the previous content. Apache renames the file to
`.bak` and writes the new one in place: a crash in between leaves a truncated file. Here the
new content is complete and on disk under a third name before any rename::

    write name.tmp, sync | name -> name.bak | name.tmp -> name | sync directory

so one of `name` and `name.bak` is complete at all times. A main file that cannot be
read never replaces a readable `.bak`; the next write keeps it as `name.damaged`.

Source: ConfigManager.java, MixAll.string2File, FileUtils, 5.4.0.
"""

import json
import logging
from pathlib import Path

from rocketpy.errors import BadBodyError
from rocketpy.proto.wire import fastjson
from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)


class UnchangingJson(dict[str, object]):
    """Immutable JSON object that caches its text.

    A table of ten thousand entries is rewritten for each new entry: encoding all of them again
    took 0.15 s.

    Attributes:
        text: the encoded object.
        text_line_end: line end used in `text`.
        entry: cache of `UnchangingEntries`: the key, a colon and the text.
        entry_line_end: line end used in `entry`.
    """

    __slots__ = ("entry", "entry_line_end", "text", "text_line_end")

    def __init__(self, value: dict[str, object]) -> None:
        """Take the content, which the caller must not change afterwards."""
        super().__init__(value)
        self.text: str = ""
        self.entry: str = ""
        self.text_line_end: str = ""
        self.entry_line_end: str = ""


class UnchangingEntries(dict[str, UnchangingJson]):
    """JSON object of `UnchangingJson` values, each of which keeps one key for its lifetime.

    Writing it takes one step per entry, a quarter less time for a table of ten thousand topics.
    """

    __slots__ = ()


class JsonFile:
    """JSON configuration file and its `.bak`; one writer at a time."""

    def __init__(self, path: Path, files: StoreFiles) -> None:
        """Name the file without reading or creating it."""
        self._path = path
        self._bak = path.with_name(path.name + ".bak")
        self._tmp = path.with_name(path.name + ".tmp")
        self._damaged = path.with_name(path.name + ".damaged")
        self._files = files
        self._main_is_whole: bool | None = None

    def load(self) -> object | None:
        """Return the parsed file, else the parsed `.bak`, else None.

        Integer keys are returned as text; see `rocketpy.proto.wire.fastjson.loads`.
        """
        value = self._read(self._path)
        self._main_is_whole = value is not None
        if value is None:
            value = self._read(self._bak)
            if value is not None:
                logger.warning("file missing or damaged, its .bak is used: path=%s", self._path)
        return value

    def save(self, value: object) -> None:
        """Replace the content by `value` and keep the present content as `.bak`.

        Args:
            value: dicts, lists, strings, numbers, booleans and None; a dict's integer
                keys are written without quotes.

        Raises:
            DiskFullError: the new content did not fit; the old files are untouched.
        """
        if self._main_is_whole is None:
            self._main_is_whole = self._read(self._path) is not None
        # Written completely to another name first: the old content stays until the new is on disk.
        self._files.write_bytes(self._tmp, dump_pretty(value).encode())
        is_whole, self._main_is_whole = self._main_is_whole, None  # a failed save checks it again
        if is_whole:
            self._files.rename(self._path, self._bak)
        elif self._files.exists(self._path) and self._files.size_bytes(self._path):
            logger.warning("damaged file kept: path=%s kept_as=%s", self._path, self._damaged)
            self._files.rename(self._path, self._damaged)
        self._files.rename(self._tmp, self._path)
        # The renames are durable only with their directory.
        self._files.sync_directories()
        self._main_is_whole = True

    def _read(self, path: Path) -> object | None:
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            return None
        if not data.strip():
            return None
        try:
            value: object = fastjson.loads(data)
        except BadBodyError as error:
            logger.warning("file not parsed: path=%s error=%s", path, error)
            return None
        if not isinstance(value, dict):
            logger.warning("file ignored, not a JSON object: path=%s", path)
            return None
        return value


def dump_pretty(value: object) -> str:
    """Return JSON indented by tabs with unquoted integer keys, as fastjson writes it."""
    pieces: list[str] = []
    _append(pieces, value, "\n")
    return "".join(pieces)


def _entry_text(name: str, item: UnchangingJson, line_end: str) -> str:
    pieces = [json.dumps(name) + ":"]
    _append(pieces, dict(item), line_end)
    item.entry, item.entry_line_end = "".join(pieces), line_end
    return item.entry


def _append(pieces: list[str], value: object, line_end: str) -> None:
    if isinstance(value, UnchangingEntries) and value:
        inner = line_end + "\t"
        entries = [
            item.entry if item.entry_line_end == inner else _entry_text(name, item, inner)
            for name, item in value.items()
        ]
        pieces += ["{" + inner, ("," + inner).join(entries), line_end + "}"]
    elif isinstance(value, UnchangingJson):
        if value.text_line_end != line_end:
            own: list[str] = []
            _append(own, dict(value), line_end)
            value.text, value.text_line_end = "".join(own), line_end
        pieces.append(value.text)
    elif isinstance(value, dict):
        inner = line_end + "\t"
        opening = "{" + inner
        for key, item in value.items():
            name = str(key) if type(key) is int else json.dumps(str(key))
            pieces.append(f"{opening}{name}:")
            _append(pieces, item, inner)
            opening = "," + inner
        pieces.append((line_end if value else "{" + inner + line_end) + "}")
    elif isinstance(value, list | tuple):
        nested = any(isinstance(item, dict | list | tuple | str) for item in value)
        inner = line_end + "\t" if nested else ""
        opening = "[" + inner
        for item in value:
            pieces.append(opening)
            _append(pieces, item, line_end + "\t")
            opening = "," + inner
        pieces.append((line_end if nested else "" if value else "[") + "]")
    else:
        pieces.append(json.dumps(value))
