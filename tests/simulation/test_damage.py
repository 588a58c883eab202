"""A flipped bit costs one message, which is reported and never delivered."""

import random

import pytest

from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.sampling import sample
from tests.simulation.ledger import Ledger, body_of, read_all
from tests.simulation.store_world import ROOT, config

MESSAGES = 150


def flip_a_bit(files: SimFiles, ledger: Ledger, number: int, rng: random.Random) -> None:
    """Change the body of a stored message on the disk."""
    body, place = body_of(number), ledger.placed[number].phy_offset
    log = ROOT / "commitlog"
    name = next(each for each in reversed(files.list_files(log)) if int(each) <= place)
    region = files.open(log / name)
    start = bytes(region.view).index(body, place - int(name))
    region.buffer[start + rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    region.flush()
    region.close()


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", sample(range(12), 2))
def test_one_flipped_bit_costs_one_message(end: str, sync: bool, seed: int) -> None:
    rng = random.Random(seed)
    settings = config(rng, sync=sync)
    clock = SimClock()
    files = SimFiles(clock)
    store = MessageStore(settings, clock=clock, files=files)
    store.open()
    ledger = Ledger()
    for number in range(MESSAGES):
        clock.advance(rng.choice([0, 1, 50, 900]))
        ledger.put(store, [number], as_batch=False)
        if number % 40 == 39:
            for service in store.services:
                service.step(clock.monotonic_ms())
    if end == "close":
        store.close()
    else:
        files.kill()
    victim = rng.choice([5, MESSAGES - 10, MESSAGES - 2])
    flip_a_bit(files, ledger, victim, rng)

    again = MessageStore(settings, clock=clock, files=files)
    again.open()
    found = {place.number: place for place in read_all(again, left_out=1)}
    expected = dict(ledger.placed)
    damaged = expected.pop(victim)
    assert found == expected
    assert again.damaged_phy_offsets == [damaged.phy_offset]
    assert again.look_message(damaged.phy_offset) is None
