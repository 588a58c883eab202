"""Finds messages by key with the index files."""

import mmap
from pathlib import Path
from typing import Final

from rocketpy.errors import CorruptRecordError, StoreFormatError
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.store.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexFile
from rocketpy.store.index.index_lookup import IndexLookup
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.queue_table import QueueTable
from rocketpy.store.scan.request import ScanRequest

_ENTRIES_PER_SLOT: Final = 4
_NO_LIMIT: Final = 1 << 62
MAX_FOUND: Final = 1_000_000
"""Most messages of one key; beyond it, a scan by queue is better."""


def places(directory: StoreDirectory, wanted: ScanRequest, log: Log) -> list[int]:
    """Return physical offsets of messages that have one of the keys, ascending.

    Keys may share a hash, so each message is checked.

    Raises:
        ValueError: no key is given, or an unknown topic.
        StoreFormatError: there is no index, or one with other ratios than Apache's default; or a
            key has more than `MAX_FOUND` messages.
    """
    if not wanted.keys:
        msg = "a scan by index needs keys"
        raise ValueError(msg)
    known = directory.known_topics() or QueueTable(directory, log).topics
    topics = set(wanted.topics_of(known))
    deleted = directory.deleted_topics()
    files = [_opened(path, wanted.index_slots) for path in directory.index_files()]
    if not files:
        raise StoreFormatError(f"{directory.root} has no index; scan by queue or log")
    hasher = IndexKeyHasher()
    found: set[int] = set()
    for topic in topics:
        for key in wanted.keys:
            for place in _look_up(files, hasher.hash(topic, key), wanted):
                if place >= deleted.get(topic, 0) and _has_key(log, place, topic, key):
                    found.add(place)
    return sorted(place for place in found if _is_in_time(log, place, wanted))


def _look_up(files: list[IndexFile], key_hash: int, wanted: ScanRequest) -> list[int]:
    lookup = IndexLookup(
        key_hash,
        MAX_FOUND + 1,
        0 if wanted.start_ms is None else wanted.start_ms,
        _NO_LIMIT if wanted.end_ms is None else wanted.end_ms,
        # No work limit: a scan must be complete, unlike a look-up of the broker.
        max_steps=_NO_LIMIT,
        max_searched_bytes=_NO_LIMIT,
    )
    for file in reversed(files):
        lookup.look_into(file)
    # One more than the limit was requested, to distinguish a full result from a truncated one.
    if len(lookup.phy_offsets) > MAX_FOUND:
        raise StoreFormatError(f"a key has more than {MAX_FOUND} messages: scan by queue")
    return lookup.phy_offsets


def _has_key(log: Log, phy_offset: int, topic: str, key: str) -> bool:
    """Return whether a message has the topic and the key; True if it is damaged.

    Reading a damaged message then reports the damage.
    """
    number = log.file_number(phy_offset)
    mapped = log.open(number) if number >= 0 else None
    if mapped is None:
        return False  # expired; the index keeps its entries a little longer
    try:
        message = decode_message(mapped.view, phy_offset - mapped.base, inflate=False)
    except CorruptRecordError:
        return True
    # The index stores hashes only, so the record decides.
    return message.topic == topic and (key in message.keys or key == message.msg_id)


def _is_in_time(log: Log, phy_offset: int, wanted: ScanRequest) -> bool:
    """Return whether the store time is in the range; the index has a resolution of seconds."""
    time_ms = log.store_time_ms(phy_offset)
    if time_ms is None:
        return True
    after = wanted.start_ms is None or time_ms >= wanted.start_ms
    return after and (wanted.end_ms is None or time_ms < wanted.end_ms)


class _ReadOnlyRegion:
    """Read-only region over a mapped index file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as opened:
            self.buffer = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.view = memoryview(self.buffer)
        self.size_bytes = len(self.buffer)


def _opened(path: Path, slots: int | None) -> IndexFile:
    """Map an index file; its length and the number of slots determine the number of entries.

    Args:
        path: path of the file.
        slots: hash slots; None for the default, a quarter of the entries.

    Raises:
        StoreFormatError: the length does not fit the number of slots.
    """
    region = _ReadOnlyRegion(path)
    room = region.size_bytes - HEADER_BYTES
    what = f"{slots} slots"
    if slots is None:
        what = "four entries per slot; give its maxHashSlotNum"
        slots = room // (SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
        entries, rest = (
            slots * _ENTRIES_PER_SLOT,
            room % (SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES),
        )
    else:
        entries, rest = divmod(room - slots * SLOT_BYTES, ENTRY_BYTES)
    # A file that does not divide evenly was written with other limits, and would be misread.
    if rest or slots <= 0 or entries <= 0:
        raise StoreFormatError(f"{path} has {region.size_bytes} bytes: not an index of {what}")
    return IndexFile(
        path.name,
        region,  # type: ignore[arg-type]  # writing methods are not called
        max_hash_slots=slots,
        max_index_count=entries,
    )
