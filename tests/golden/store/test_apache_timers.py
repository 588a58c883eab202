"""Timer files of Apache 5.4.0: reading, delivery, and equal bytes."""

import struct
from pathlib import Path

import pytest

from rocketpy.broker.delay.offsets import DelayOffsets
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.timer.service import TimerService
from rocketpy.store.files.json_file import JsonFile, dump_pretty
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.message_store import MessageStore
from rocketpy.store.timer.checkpoint import TimerCheckpoint
from rocketpy.store.timer.log import UNIT, UNIT_BYTES, TimerUnit
from rocketpy.store.timer.state import TimerState
from rocketpy.store.timer.wheel import SLOT, TimerWheel
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.golden.store.test_apache_stores import VECTORS, extract, open_store, unpack

LOG_FILE_BYTES = 102_400
READ_MS = 1_795_251_481_000
THREE_DAYS_MS = 3 * 86_400_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_VecCluster"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    unpack("store-small", tmp_path)
    extract(VECTORS / "store-small/timer.tar.xz", tmp_path)
    return tmp_path


def make_state(root: Path, clock: SimClock) -> TimerState:
    return TimerState(
        root, precision_ms=1_000, log_file_bytes=LOG_FILE_BYTES, files=RealFiles(), clock=clock
    )


def total(store: MessageStore, topic: str, queues: int) -> int:
    return sum(store.max_offset(topic, queue_id) for queue_id in range(queues))


def test_timers_of_apache_are_delivered(root: Path) -> None:
    store = open_store(root)
    clock = SimClock(time_ms=READ_MS)
    state = make_state(root, clock)
    counts = PendingCounts(
        "TimerCounts",
        "timingCount",
        JsonFile(root / "config" / "timermetrics", RealFiles()),
        topic_exists=lambda _topic: True,
        clock=clock,
    )
    put = SystemWriter(store, lambda _topic, _count, _size: None)
    timer = TimerService(
        store,
        put,
        state,
        PutRetry(put, MessageScheduler((1_000,), clock).delay, (1_000,)),
        roll_window_slots=172_800,
        queue_of=lambda _topic, queue_id: queue_id,
        counts=counts,
        clock=clock,
    )
    counts.load()
    timer.load()
    assert state.marks.read_ms == READ_MS
    assert state.pending_count == 11
    before_count = counts.of("VecTimer")
    before = total(store, "VecTimer", 8), total(store, REVIVE_TOPIC, 8)
    end_ms = THREE_DAYS_MS
    while clock.monotonic_ms() < end_ms:
        next_ms = timer.step(clock.monotonic_ms())
        clock.advance(max(0, min(next_ms + 20_000, end_ms) - clock.monotonic_ms()))
    after = total(store, "VecTimer", 8), total(store, REVIVE_TOPIC, 8)
    assert (after[0] - before[0], after[1] - before[1]) == (8, 3)
    assert (before_count, counts.of("VecTimer")) == (8, 0)
    counts.persist()
    assert b'"VecTimer":{' in (root / "config" / "timermetrics").read_bytes()
    timer.persist()
    store.close()


def test_timer_units_equal_the_bytes_of_apache(root: Path) -> None:
    theirs = (root / "timerlog" / f"{0:020d}").read_bytes()
    files = SimFiles()
    state = TimerState(
        Path("/ours"),
        precision_ms=1_000,
        log_file_bytes=LOG_FILE_BYTES,
        files=files,
        clock=SimClock(),
    )
    state.load(1 << 40)
    at = 0
    while UNIT.unpack_from(theirs, at)[0] == UNIT_BYTES:
        _, _, *values, _ = UNIT.unpack_from(theirs, at)
        state.add(TimerUnit(-1, *values), at // UNIT_BYTES)
        at += UNIT_BYTES
    assert at == 20 * UNIT_BYTES
    state.flush(lambda: (READ_MS, 20))
    assert files.read_bytes(Path("/ours/timerlog") / f"{0:020d}") == theirs
    assert files.read_bytes(Path("/ours/timerwheel")) == (root / "timerwheel").read_bytes()
    ours = files.read_bytes(Path("/ours/config/timercheck"))
    apaches = (root / "config/timercheck").read_bytes()
    assert len(ours) == len(apaches)
    assert ours[:32] == apaches[:32]


def test_delay_offsets_of_apache_are_loaded(root: Path) -> None:
    offsets = DelayOffsets(
        JsonFile(root / "config/delayOffset.json", RealFiles()),
        SimClock(),
        interval_ms=10_000,
        version_step=200,
        kept_phy_offset=lambda: 1 << 40,
        flush_log=lambda: True,
    )
    offsets.load()
    before = (root / "config/delayOffset.json").read_bytes()
    assert offsets.to_json()["offsetTable"] == {1: 4, 2: 1, 18: 0}
    assert dump_pretty(offsets.to_json()).encode() == before


def test_timer_files_of_apache_are_decoded(root: Path) -> None:
    marks = TimerCheckpoint(root / "config/timercheck", RealFiles()).load()
    assert marks[:5] == (READ_MS, 1_040, 20, 20, 0)
    wheel = TimerWheel(root / "timerwheel", 1_000, RealFiles())
    assert wheel.load()
    assert {slot.tick: slot[1:] for slot in wheel.slots()}[1_795_258_445] == (208, 416, 5)
    wheel.close()
    raw = (root / "timerwheel").read_bytes()
    assert struct.unpack_from(">q", raw, 212_045 * SLOT.size)[0] == 1_795_258_445
