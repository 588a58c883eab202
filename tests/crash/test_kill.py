"""`kill -9` at any moment: nothing acknowledged is lost, nothing is invented, order is kept.

`CRASH_KILLS` (default 3) is the number of kills a case; raise it for a long run.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rocketpy.runtime.clock import SystemClock
from rocketpy.store.message_store import MessageStore
from tests.crash.writer import LIMIT, config
from tests.simulation.ledger import (
    Place,
    check_lookups,
    check_order,
    queue_of,
    read_all,
)

KILLS = int(os.environ.get("CRASH_KILLS", "3"))
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.crash


def run_and_kill(arguments: list[str], life_s: float, *, after: int = 0) -> list[Place]:
    """Start a writer, kill it after a while, return what it was able to acknowledge.

    Args:
        arguments: of the writer.
        life_s: how long it lives, seconds.
        after: it lives so long from so many messages on: a slow machine writes few in a while. With
            no life after them it writes at most what a pipe takes (64 KiB, a line a message) more.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    first_line = child.stdout.readline()
    if first_line != b"started\n":
        pytest.fail(f"the writer did not start: {child.stderr.read().decode()}")
    output = b"".join(child.stdout.readline() for _ in range(after))
    killer = threading.Timer(life_s, child.kill)
    if life_s:
        killer.start()
    else:
        child.kill()
    output += child.stdout.read()
    killer.cancel()
    errors = child.stderr.read().decode()
    child.wait()
    child.stdout.close()
    child.stderr.close()
    assert child.returncode == -9, f"the writer ended by itself: {errors}"
    whole = output[: output.rfind(b"\n") + 1]
    return [Place(*map(int, line.split())) for line in whole.splitlines()]


def catch_up(store: MessageStore) -> None:
    """Let the index read back what the kill took from it."""
    service = next(each for each in store.services if each.name == "IndexCatchUpService")
    while service.step(0) == 0:
        pass


def check(directory: Path, acknowledged: list[Place], firsts: list[int], flush: str) -> None:
    """Open the store and compare it with all that was ever acknowledged."""
    store = MessageStore(config(directory, flush), clock=SystemClock())
    store.open()
    try:
        places = read_all(store)
        check_order(places)
        found = {place.number: place for place in places}
        assert len(found) == len(places), "a message came twice"
        lost = [place for place in acknowledged if found.get(place.number) != place]
        assert not lost, f"{len(lost)} acknowledged messages lost or moved, the first: {lost[0]}"
        by_life = dict.fromkeys(firsts, 0)
        for place in acknowledged:
            by_life[place.number // LIMIT * LIMIT] = place.number
        for place in places:
            first = place.number // LIMIT * LIMIT
            assert first in by_life, f"invented: {place}"
            assert place.number <= max(by_life[first], first) + 32, f"invented: {place}"
        catch_up(store)
        step = max(1, len(places) // 500)
        check_lookups(store, places[::step] + places[-50:])
    finally:
        store.close()


@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_kill_at_any_moment(tmp_path: Path, flush: str, batch: int) -> None:
    rng = random.Random(f"{flush}{batch}{os.environ.get('SEED', '')}")
    directory = tmp_path / "store"
    acknowledged: list[Place] = []
    firsts = []
    for life in range(KILLS):
        first = (life + 1) * LIMIT
        firsts.append(first)
        life_s = rng.uniform(0.01, 0.5)
        is_last_chance = life + 1 == KILLS and not acknowledged
        arguments = [str(directory), flush, str(first), str(batch)]
        acknowledged += run_and_kill(arguments, life_s, after=int(is_last_chance))
        if rng.random() < 0.5 and life + 1 < KILLS:  # the next writer recovers by itself
            shutil.copytree(directory, tmp_path / f"copy{life}")
            check(tmp_path / f"copy{life}", acknowledged, firsts, flush)
            shutil.rmtree(tmp_path / f"copy{life}")
        else:
            check(directory, acknowledged, firsts, flush)
    assert acknowledged
    assert all(queue_of(place.number) < 3 for place in acknowledged)
