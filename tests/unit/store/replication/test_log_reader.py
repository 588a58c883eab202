"""Parts of a log for slaves, and samples that prove two logs equal."""

from zlib import crc32

import pytest

from rocketpy.store.commit_log.prefetch import RECENT_BYTES
from rocketpy.store.replication import log_reader
from tests.unit.store.store_kit import Kit, put_many

FILE_BYTES = 16384


def test_log_part_ends_at_file_end_and_at_log_end() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 150)
    whole = b"".join(bytes(mapped.view) for mapped in store._log.files)
    end = store.max_phy_offset
    assert FILE_BYTES < end < 3 * FILE_BYTES
    at = 0
    while at < end:
        part = store.log_part(at, 5_000)
        assert part is not None
        assert 0 < len(part) <= 5_000
        assert at // FILE_BYTES == (at + len(part) - 1) // FILE_BYTES
        assert bytes(part) == whole[at : at + len(part)]
        at += len(part)
    assert at == end
    assert store.log_part(end, 100) is None
    assert store.log_part(end + 1, 100) is None
    assert store.log_part(-1, 100) is None


def test_log_part_old_bytes_are_read_by_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 150)
    hot = store.log_part(300, 1_000)
    monkeypatch.setattr(log_reader, "RECENT_BYTES", 1_000)
    assert RECENT_BYTES > 1_000
    cold = store.log_part(300, 1_000)
    assert cold == hot
    assert store.log_part(16_000, 1_000) == store._log.record(16_000, 384)
    assert store.log_part(16_384, 500) == store._log.record(16_384, 500)
    assert cold is not None
    assert hot is not None
    assert cold.obj is not hot.obj


def test_log_samples_cover_range_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "END_SAMPLE_BYTES", 64 << 10)
    kit = Kit()
    store = kit.open()
    put_many(store, 700)
    end = store.max_phy_offset
    samples = store.log_samples(16, 1_000)
    assert len(samples) == 16
    assert samples[0].offset == 0
    assert len({each.offset for each in samples}) == 16
    last = samples[-1]
    assert (last.offset + last.length, last.length) == (end, 64 << 10)
    whole = b"".join(bytes(mapped.view) for mapped in store._log.files)
    assert all(
        crc32(whole[each.offset : each.offset + each.length]) == each.crc for each in samples
    )
    assert store.first_difference(samples) is None
    assert min(each.offset for each in store.log_samples(16, 1_000, 90_000)) == 90_000
    assert store.log_samples(16, 1_000, end + 1) == []


def test_log_samples_of_short_and_empty_logs() -> None:
    kit = Kit()
    store = kit.open()
    assert store.log_samples(64, 4_096) == []
    put_many(store, 1)
    samples = store.log_samples(64, 4_096)
    assert samples[-1][:2] == (0, store.max_phy_offset)
    assert all(each.offset + each.length == store.max_phy_offset for each in samples)


def test_first_difference_names_first_sample_that_differs() -> None:
    one, other = Kit().open(), Kit().open()
    put_many(one, 300)
    put_many(other, 200)
    cut = other.max_phy_offset
    put_many(other, 100, start=900)
    samples = other.log_samples(64, 500)
    found = one.first_difference(samples)
    assert found is not None
    assert found + 500 > cut
    ends = {each.offset + each.length for each in samples}
    assert all(end <= cut for end in ends if end < found + 500)


def test_first_difference_ignores_samples_outside_the_log() -> None:
    store = Kit().open()
    put_many(store, 10)
    end = store.max_phy_offset
    outside = [(end - 10, 11, 1), (end + 5, 10, 2), (-4, 4, 3), (0, -1, 4)]
    assert store.first_difference(outside) is None
    assert store.first_difference([*outside, (0, 4, 5)]) == 0
