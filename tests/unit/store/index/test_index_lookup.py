"""A look-up finds what the chain holds, in any time range, with a bounded number of steps."""

import random
from pathlib import Path
from typing import Any

import pytest

from rocketpy.store.index.index_file import IndexFile, index_file_bytes
from rocketpy.store.index.index_lookup import IndexLookup
from rocketpy.testing.sim_files import SimFiles
from tests.sampling import sample

SLOTS = 50
COUNT = 20_000
BEGIN_MS = 1_000_000
BUSY, OTHER, RARE = 1_000_007, 57, 11
FOREVER = (1 << 63) - 1


def index_file(hashes: list[int]) -> IndexFile:
    """Messages every 100 bytes, one a second."""
    region = SimFiles().create(Path("/index"), index_file_bytes(SLOTS, COUNT))
    file = IndexFile("index", region, max_hash_slots=SLOTS, max_index_count=COUNT)
    for number, key_hash in enumerate(hashes):
        assert file.put_one(key_hash, number * 100, BEGIN_MS + number * 1_000)
    return file


def in_range(hashes: list[int], key_hash: int, begin: int, end: int) -> list[int]:
    """Return the result of a walk over all entries."""
    return [
        n * 100 for n in range(min(end, len(hashes) - 1), begin - 1, -1) if hashes[n] == key_hash
    ]


def look(
    file: IndexFile, key_hash: int, begin: int, end: int, **limits: Any
) -> tuple[list[int], bool, int]:
    """Places, whether that is all, and how many entries were read."""
    reads = []
    real_entry = type(file).entry

    class Counting(IndexFile):
        __slots__ = ()

        def entry(self, number: int) -> tuple[int, int, int, int]:
            reads.append(number)
            return real_entry(self, number)

    file.__class__ = Counting
    lookup = IndexLookup(key_hash, 64, BEGIN_MS + begin * 1_000, BEGIN_MS + end * 1_000, **limits)
    lookup.look_into(file)
    file.__class__ = IndexFile
    return lookup.phy_offsets, lookup.is_complete, len(reads)


@pytest.mark.parametrize("span", [(0, 5), (100, 140), (9_000, 9_020), (14_990, 20_000), (0, 0)])
def test_old_time_range_of_a_busy_key_costs_few_steps(span: tuple[int, int]) -> None:
    hashes = [BUSY if number % 3 else OTHER for number in range(15_000)]
    found, is_complete, steps = look(index_file(hashes), BUSY, *span)
    assert found == in_range(hashes, BUSY, *span)[:64]
    assert is_complete
    assert steps < 600


def test_rare_key_behind_a_busy_one_in_its_chain_is_found() -> None:
    assert BUSY % SLOTS == OTHER % SLOTS
    hashes = [BUSY] * 15_000
    hashes[40] = OTHER
    found, is_complete, steps = look(index_file(hashes), OTHER, 0, 14_000)
    assert (found, is_complete) == ([4_000], True)
    assert steps < 600


def test_key_that_is_not_there_is_not_found() -> None:
    hashes = [BUSY] * 5_000
    found, is_complete, steps = look(index_file(hashes), OTHER, 0, 1_000)
    assert (found, is_complete) == ([], True)
    assert steps == pytest.approx(280, abs=40)
    assert look(index_file(hashes), RARE, 0, 5_000) == ([], True, 0)


@pytest.mark.parametrize("seed", sample(range(20), 2))
def test_any_range_of_any_mix(seed: int) -> None:
    rng = random.Random(seed)
    keys = [rng.randrange(1 << 31) if rng.random() < 0.5 else SLOTS * n for n in range(4)]
    weights = [rng.choice([1, 10, 1_000]) for _ in keys]
    hashes = rng.choices(keys, weights, k=rng.randint(1, 6_000))
    file = index_file(hashes)
    for _ in range(20):
        begin, end = sorted(rng.randint(-10, len(hashes) + 10) for _ in range(2))
        key_hash = rng.choice(keys)
        found, is_complete, _ = look(file, key_hash, begin, end)
        assert is_complete
        assert found == in_range(hashes, key_hash, max(begin, 0), end)[:64]


def test_work_of_one_look_up_is_bounded_and_it_says_so() -> None:
    hashes = [OTHER, *[BUSY] * 15_000]
    file = index_file(hashes)
    found, is_complete, steps = look(
        file, OTHER, 0, 10_000, max_steps=1_000, max_searched_bytes=20_000
    )
    assert (found, is_complete) == ([], False)
    assert steps <= 1_040


def test_file_that_is_written_meanwhile_is_read_as_far_as_it_was() -> None:
    file = index_file([BUSY] * 100)
    lookup = IndexLookup(BUSY, 1_000, 0, FOREVER)
    lookup.look_into(file)
    assert len(lookup.phy_offsets) == 100


def test_records_that_are_not_accepted_do_not_count() -> None:
    """Other keys have the same hash; 200 newer records of one must not hide the wanted one."""
    file = index_file([BUSY] * 300)
    lookup = IndexLookup(BUSY, 2, 0, FOREVER, accept=lambda phy_offset: phy_offset < 1_000)
    lookup.look_into(file)
    assert (lookup.phy_offsets, lookup.is_complete) == ([900, 800], True)


def test_records_that_are_not_accepted_cost_steps() -> None:
    file = index_file([BUSY] * 300)
    lookup = IndexLookup(BUSY, 2, 0, FOREVER, max_steps=1_000, accept=lambda _: False)
    lookup.look_into(file)
    assert (lookup.phy_offsets, lookup.is_complete) == ([], False)
