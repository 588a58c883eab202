"""Archives have each message exactly once, wherever their writer was killed."""

import contextlib
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rocketpy.errors import JobError
from rocketpy.spark.jobs.parquet_archive import manifest as archive_log
from rocketpy.spark.jobs.parquet_archive.compaction import compact, small_file_groups
from rocketpy.spark.jobs.parquet_archive.files import ArchiveFile
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog, Manifest, archived_files
from tests.unit.spark.jobs.kit import (
    DAY_US,
    NOON_US,
    Killed,
    Killer,
    in_archive,
    keys,
    rows,
    staged,
)


def fill(root: Path, batches: int = 4) -> None:
    """Commit batches of ten messages for two queues."""
    with ArchiveLog(root) as log:
        for number in range(batches):
            span = range(number * 10, number * 10 + 10)
            pieces = staged(root, rows("T", 0, span), rows("T", 1, span))
            log.commit("q", number, pieces, [("T", "broker-a", 0, span.stop)])


def test_commit_writes_files_named_by_offsets_and_a_manifest(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    folder = "topic=T/date=2026-06-01"
    assert names == [
        f"{folder}/part-broker-a-0-{0:020d}-{10:020d}.parquet",
        f"{folder}/part-broker-a-1-{0:020d}-{10:020d}.parquet",
    ]
    assert [each.path for each in archived_files(tmp_path)] == names
    with ArchiveLog(tmp_path) as log:
        assert log.has("q", 0)
        assert not log.has("q", 1)
        assert not log.has("other", 0)
        assert log.ends == {("T", "broker-a", 0): 10}
        assert sum(each.rows for each in log.files) == 20
        assert all(each.size_bytes == (tmp_path / each.path).stat().st_size for each in log.files)


def test_archive_keeps_columns_and_stores_the_topic_as_directory(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    table = pq.read_table(tmp_path / archived_files(tmp_path)[0].path, partitioning=None)
    assert "topic" not in table.column_names
    assert table.column("body").to_pylist()[3] == b"T/0/3"
    assert table.column("properties").to_pylist()[3] == [("n", "3")]


def test_archive_of_two_days_has_two_files(tmp_path: Path) -> None:
    batch = rows("T", 0, range(4), stored_us=NOON_US, step_us=DAY_US // 3)
    with ArchiveLog(tmp_path) as log:
        log.commit("q", 0, staged(tmp_path, batch))
        assert [(each.date, each.first, each.end) for each in log.files] == [
            ("2026-06-01", 0, 2),
            ("2026-06-02", 2, 4),
        ]
    assert in_archive(tmp_path) == keys("T", 0, range(4))


def test_archive_of_topics_with_unsafe_names_quotes_directories(tmp_path: Path) -> None:
    with ArchiveLog(tmp_path) as log:
        log.commit("q", 0, staged(tmp_path, rows("%DLQ%a|b", 0, range(3))))
    assert in_archive(tmp_path) == keys("%DLQ%a|b", 0, range(3))


def test_commit_repeated_after_a_kill_has_each_message_once(tmp_path: Path) -> None:
    """The first attempt is killed before its manifest; the second has other ranges."""
    (tmp_path / "topic=T/date=2026-06-01").mkdir(parents=True)
    for piece in staged(tmp_path, rows("T", 0, range(10))):
        (tmp_path / piece.staged).rename(tmp_path / piece.file.path)
    with ArchiveLog(tmp_path) as log:
        assert log.files == []
        pieces = staged(tmp_path, rows("T", 0, range(5)), rows("T", 0, range(5, 10)))
        log.commit("q", 0, pieces)
    assert in_archive(tmp_path) == keys("T", 0, range(10))


def test_commit_of_archived_offsets_raises(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with ArchiveLog(tmp_path) as log:
        with pytest.raises(JobError, match=r"offsets 15 to 24 of T, broker-a, queue 1 .* already"):
            log.commit("another", 0, staged(tmp_path, rows("T", 1, range(15, 25))))
    assert in_archive(tmp_path) == keys("T", 0, range(20)) + keys("T", 1, range(20))


def test_commit_of_reassigned_offsets_writes_files_of_a_new_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker lost its last messages, which are archived."""
    queue = ("T", "broker-a", 0)
    fill(tmp_path, 2)
    again = rows("T", 0, range(12, 20))
    with ArchiveLog(tmp_path) as log:
        log.commit("q", 2, [], [(*queue, 12)], [queue])
        log.commit("q", 3, staged(tmp_path, again), [(*queue, 20)])
        log.commit("q", 4, staged(tmp_path, rows("T", 0, range(20, 25))), [(*queue, 25)])
        with pytest.raises(JobError, match=r"offsets 11 to 13 .*part-broker-a-0\.1-0.*12-"):
            log.commit("another", 0, staged(tmp_path, rows("T", 0, range(11, 14))))
    both = keys("T", 0, range(20)) + keys("T", 0, range(12, 25)) + keys("T", 1, range(20))
    monkeypatch.setattr(archive_log, "MANIFESTS_MAX", 3)
    for _ in range(2):
        with ArchiveLog(tmp_path) as log:  # the start first writes a summary
            assert log.ends[queue] == 25
            compact(log)
        assert in_archive(tmp_path) == both
    assert [each.name for each in archived_files(tmp_path)] == [
        f"part-broker-a-0-{0:020d}-{20:020d}.parquet",
        f"part-broker-a-0.1-{12:020d}-{25:020d}.parquet",
        f"part-broker-a-1-{0:020d}-{20:020d}.parquet",
    ]
    with ArchiveLog(tmp_path) as log:
        log.commit("q", 5, [], [(*queue, 24)], [queue])
        log.commit("q", 6, staged(tmp_path, rows("T", 0, range(24, 26))), [(*queue, 26)])
    assert in_archive(tmp_path) == both + keys("T", 0, range(24, 26))


def test_archive_log_in_use_raises(tmp_path: Path) -> None:
    with ArchiveLog(tmp_path):
        with pytest.raises(JobError, match="another job writes to the archive"):
            ArchiveLog(tmp_path)
    ArchiveLog(tmp_path).close()


def test_archived_files_without_an_archive_raises(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="is no archive"):
        archived_files(tmp_path)
    (tmp_path / "_manifests").mkdir()
    (tmp_path / "_manifests" / f"{0:020d}.json").write_text('{"version": 0}')
    with pytest.raises(JobError, match="is not a manifest of an archive"):
        archived_files(tmp_path)


def test_archive_log_with_many_manifests_writes_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "MANIFESTS_MAX", 3)
    fill(tmp_path, 6)
    before = archived_files(tmp_path)
    with ArchiveLog(tmp_path) as log:
        assert log.files == before
        log.commit("q", 6, staged(tmp_path, rows("T", 0, range(60, 70))))
    assert len(list((tmp_path / "_manifests").glob("*.json"))) == 2
    with ArchiveLog(tmp_path) as log:
        assert len(log.files) == len(before) + 1
        assert log.has("q", 6)
        assert log.ends == {("T", "broker-a", 0): 60}


@pytest.mark.parametrize("before", range(12))
def test_archive_log_killed_during_a_summary_stays_readable(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remaining manifest removes files that a deleted manifest added."""
    fill(tmp_path, 6)
    with ArchiveLog(tmp_path) as log:
        compact(log)
        log.commit("q", 6, staged(tmp_path, rows("T", 0, range(60, 70))))
        files, ends = log.files, log.ends
    monkeypatch.setattr(archive_log, "MANIFESTS_MAX", 3)
    killer = Killer(before)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killer.wrap(Path.unlink))
        patched.setattr(Path, "replace", killer.wrap(Path.replace))
        with contextlib.suppress(Killed):
            ArchiveLog(tmp_path).close()

    assert archived_files(tmp_path) == files
    with ArchiveLog(tmp_path) as log:
        assert (log.files, log.ends, log.has("q", 6)) == (files, ends, True)
        log.commit("q", 7, staged(tmp_path, rows("T", 1, range(60, 70))))
    assert in_archive(tmp_path) == keys("T", 0, range(70)) + keys("T", 1, range(70))


def test_archived_files_during_a_summary_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 6)
    before = archived_files(tmp_path)
    monkeypatch.setattr(archive_log, "MANIFESTS_MAX", 3)
    read = archive_log._read
    starts = iter([tmp_path])

    def read_late(path: Path) -> Manifest:
        for root in starts:  # once: after the reader has listed them
            monkeypatch.setattr(archive_log, "_read", read)
            ArchiveLog(root).close()
        return read(path)

    monkeypatch.setattr(archive_log, "_read", read_late)

    assert archived_files(tmp_path) == before


def test_manifest_encode_and_decode_round_trip() -> None:
    file = ArchiveFile("T", "2026-06-01", "b", 0, 1, 9, 8, 100)
    manifest = Manifest(
        version=3,
        query="q",
        batch=2,
        added=[file],
        removed=["x"],
        ends=[("T", "b", 0, 9)],
        swapped=("a", "b"),
        batches={"p": 1},
    )
    assert Manifest.decode(manifest.encode()) == manifest


def test_small_file_groups_join_neighbours() -> None:
    def file(first: int, end: int, size_bytes: int = 10, queue_id: int = 0) -> ArchiveFile:
        return ArchiveFile("T", "2026-06-01", "b", queue_id, first, end, end - first, size_bytes)

    files = [file(0, 5), file(5, 9), file(9, 99, 5000), file(99, 100), file(0, 5, queue_id=1)]
    files += [file(100, 110), file(110, 120, 95), file(120, 121)]
    runs = small_file_groups(files, small_bytes=1000, target_bytes=105)
    spans = [[(each.first, each.end) for each in run] for run in runs]
    assert spans == [[(0, 5), (5, 9)], [(99, 100), (100, 110)], [(110, 120), (120, 121)]]


def test_compact_keeps_every_row(tmp_path: Path) -> None:
    fill(tmp_path)
    with ArchiveLog(tmp_path) as log:
        log.commit("q", 4, staged(tmp_path, rows("U", 0, range(7))))
        done = compact(log)
        assert (done.files_before, done.files_after) == (8, 2)
        assert [(each.topic, each.first, each.end, each.rows) for each in log.files] == [
            ("T", 0, 40, 40),
            ("T", 0, 40, 40),
            ("U", 0, 7, 7),
        ]
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    everything = keys("T", 0, range(40)) + keys("T", 1, range(40)) + keys("U", 0, range(7))
    assert in_archive(tmp_path) == everything
    with ArchiveLog(tmp_path) as log:
        assert (compact(log).files_before, log.has("q", 4)) == (0, True)
        log.commit("q", 5, staged(tmp_path, rows("T", 0, range(40, 50))))
    assert in_archive(tmp_path) == everything + keys("T", 0, range(40, 50))


def test_compact_of_a_file_with_other_rows_raises(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with ArchiveLog(tmp_path) as log:
        first, second = log.files[:2]
        shutil.copy(tmp_path / log.files[2].path, tmp_path / second.path)
        pq.write_table(
            pq.read_table(tmp_path / first.path, partitioning=None).slice(0, 3),
            tmp_path / first.path,
        )
        with pytest.raises(JobError, match="another number than their manifests"):
            compact(log)


def life(root: Path) -> None:
    """Run a batch, a compaction and another batch; resume where a killed run stopped."""
    with ArchiveLog(root) as log:
        for number in range(3):
            if not log.has("q", number):
                span = range(number * 10, number * 10 + 10)
                log.commit("q", number, staged(root, rows("T", 0, span), rows("T", 1, span)))
            if number == 1:
                compact(log)


@pytest.mark.parametrize("can_swap", [True, False])
def test_archive_killed_before_any_change_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_swap: bool
) -> None:
    """The kill precedes each change of the file system in turn; the next start recovers."""
    everything = keys("T", 0, range(30)) + keys("T", 1, range(30))
    if not can_swap:
        monkeypatch.setattr(archive_log, "swap_folders", lambda *_: False)
    before = 0
    while True:
        root, killer = tmp_path / str(before), Killer(before)
        root.mkdir()
        with monkeypatch.context() as patch:
            for owner, name in (
                (Path, "replace"),
                (Path, "rename"),
                (Path, "unlink"),
                (os, "link"),
                (shutil, "rmtree"),
                (archive_log, "swap_folders"),
            ):
                patch.setattr(owner, name, killer.wrap(getattr(owner, name)))
            try:
                life(root)
                break
            except Killed:
                pass
        seen = in_archive(root)
        assert not seen - everything, f"killed before change {before}: something is twice"
        if can_swap and any((root / "_manifests").glob("*.json")):
            assert seen.total() >= sum(each.rows for each in archived_files(root))
        life(root)
        assert in_archive(root) == everything, f"killed before change {before}"
        assert len(archived_files(root)) == len(list(root.rglob("part-*.parquet")))
        before += 1
    assert before > 10
