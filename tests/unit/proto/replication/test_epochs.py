"""Epoch lists: text of Apache's file, and up to where two logs agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import StoreFormatError
from rocketpy.proto.replication.epochs import (
    MAX_EPOCHS,
    Epoch,
    Epochs,
    decode_epochs,
    encode_epochs,
    epoch_at,
    epochs_after,
    epochs_before,
    equal_end,
    next_start,
    with_epoch,
    with_origin,
)

APACHE = b"2\n434726337\n1-0\n2-1335\n"
"""File that Apache's broker wrote (5.4.0)."""


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return tuple(Epoch(*each) for each in pairs)


def test_epoch_list_of_apache_is_read_and_written_byte_for_byte() -> None:
    assert decode_epochs(APACHE) == epochs((1, 0), (2, 1335))
    assert encode_epochs(epochs((1, 0), (2, 1335))) == APACHE


def test_epoch_list_without_checksum_is_read() -> None:
    assert decode_epochs(b"1\n0\n3-7\n") == epochs((3, 7))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1\n0\n",
        b"1\n5\n3-7\n",
        b"2\n0\n3-7\n",
        b"2\n0\n3-7\n3-9\n",
        b"2\n0\n3-7\n4-7\n",
        b"1\n0\n-1-7\n",
        b"x\n0\n3-7\n",
        b"1\n0\n3:7\n",
        APACHE.replace(b"1335", b"1336"),
        b"\xff\n0\n1-1\n",
        b"0\n0",
        b"1\n0\n1_0-0\n",
        b"1\n0\n 1-+0\n",
    ],
)
def test_damaged_epoch_list_is_refused(text: bytes) -> None:
    with pytest.raises(StoreFormatError):
        decode_epochs(text)


@pytest.mark.parametrize("length", range(len(APACHE) - 1))
def test_epoch_list_cut_at_any_byte_is_refused(length: int) -> None:
    with pytest.raises(StoreFormatError):
        decode_epochs(APACHE[:length])


def test_epoch_that_stored_nothing_is_replaced_by_the_next() -> None:
    assert with_epoch(epochs((1, 0), (2, 100)), 3, 100) == epochs((1, 0), (3, 100))
    assert with_epoch(epochs((1, 0), (2, 100)), 3, 101) == epochs((1, 0), (2, 100), (3, 101))
    assert with_epoch((), 1, 0) == epochs((1, 0))


def test_epoch_that_is_lower_is_refused() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        with_epoch(epochs((2, 0)), 1, 10)


def test_epoch_of_an_earlier_attempt_to_start_stays_as_it_is() -> None:
    assert with_epoch(epochs((1, 0), (2, 10)), 2, 10) == epochs((1, 0), (2, 10))


def test_epoch_list_that_is_too_long_loses_its_oldest_entries() -> None:
    found: Epochs = ()
    for number in range(MAX_EPOCHS + 5):
        found = with_epoch(found, number + 1, number)
    assert len(found) == MAX_EPOCHS
    assert found[-1] == Epoch(MAX_EPOCHS + 5, MAX_EPOCHS + 4)


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "equal"),
    [
        # As seen with Apache: cut where the new master's epoch begins.
        (((1, 0), (2, 1335)), 4283, ((1, 0), (2, 1335), (6, 2877)), 9000, 2877),
        # Behind the master: nothing to cut.
        (((1, 0),), 50, ((1, 0), (2, 100)), 200, 50),
        # The own epoch was never known to the master.
        (((1, 0), (2, 100)), 150, ((1, 0), (3, 100)), 300, 100),
        (((1, 0), (2, 100)), 150, ((1, 0), (3, 120)), 300, 100),
        # Longer than the master in the same epoch.
        (((1, 0),), 500, ((1, 0),), 300, 300),
        # The master's retention has deleted the first epochs, and its list with them.
        (((1, 0), (2, 10), (3, 20)), 25, ((3, 20), (4, 40)), 50, 25),
        (((1, 0),), 50, ((2, 60),), 70, None),
        # The first master of an empty log was replaced before any replica had a message of it.
        (((1, 0),), 250, ((2, 0),), 0, 0),
        (((1, 0), (4, 90)), 250, ((2, 0), (5, 40)), 100, 0),
        # The same, where the log was begun without a controller.
        (((1, 500),), 700, ((2, 500),), 600, 500),
        (((1, 500),), 700, ((2, 400),), 900, 400),
        (((2, 400),), 700, ((3, 500),), 900, None),
        ((), 700, ((3, 500),), 900, None),
        # An entry behind the own end says nothing.
        (((1, 0), (2, 100)), 80, ((1, 0), (2, 100)), 200, 80),
    ],
)
def test_logs_agree_up_to_their_last_common_epoch(
    own: tuple[tuple[int, int], ...],
    own_end: int,
    other: tuple[tuple[int, int], ...],
    other_end: int,
    equal: int | None,
) -> None:
    assert equal_end(epochs(*own), own_end, epochs(*other), other_end) == equal


def test_epochs_of_a_cut_log_begin_before_the_cut() -> None:
    found = epochs((1, 0), (2, 100), (3, 200))
    assert epochs_before(found, 150) == epochs((1, 0), (2, 100))
    assert epochs_before(found, 100) == epochs((1, 0))
    assert epochs_before(found, 0) == epochs((1, 0))


def test_epochs_of_deleted_bytes_are_dropped() -> None:
    found = epochs((1, 0), (2, 100), (3, 200))
    assert epochs_after(found, 100) == epochs((2, 100), (3, 200))
    assert epochs_after(found, 99) == found
    assert epochs_after(found, 900) == epochs((3, 200))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Epochs, list[int], Epochs, list[int]]:
    """Two logs with a common begin, as lists of the epochs of their bytes."""
    common = sorted(draw(st.lists(st.integers(1, 4), min_size=1, max_size=12)))
    # Each continues under epochs that the other does not have.
    first = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=8)))
    second = sorted(draw(st.lists(st.sampled_from([6, 8]), max_size=8)))
    logs = [common + first, common + second]
    lists = [tuple(Epoch(number, log.index(number)) for number in sorted(set(log))) for log in logs]
    return lists[0], logs[0], lists[1], logs[1]


@given(histories())
def test_equal_end_never_exceeds_the_equal_bytes_of_two_logs(
    drawn: tuple[Epochs, list[int], Epochs, list[int]],
) -> None:
    own, own_log, other, other_log = drawn
    equal = equal_end(own, len(own_log), other, len(other_log))
    assert equal is not None
    assert own_log[:equal] == other_log[:equal]
    longest = next(
        (i for i, (a, b) in enumerate(zip(own_log, other_log, strict=False)) if a != b),
        min(len(own_log), len(other_log)),
    )
    assert equal == longest


def test_epoch_at_an_offset_is_the_last_one_that_begins_before_it() -> None:
    one, two = found = epochs((1, 10), (2, 20))
    at = [(epoch_at(found, each), next_start(found, each)) for each in (9, 10, 19, 20, 99)]
    assert at == [(None, 10), (one, 20), (one, 20), (two, None), (two, None)]
    assert (epoch_at((), 5), next_start((), 5)) == (None, None)


@pytest.mark.parametrize("found", [(), epochs((1, 0), (2, 5)), epochs((0, 0), (2, 5))])
def test_origin_is_not_added_to_a_complete_list(found: Epochs) -> None:
    assert with_origin(found) == found


def test_origin_covers_the_bytes_before_the_first_epoch_within_the_limit() -> None:
    assert with_origin(epochs((3, 7))) == epochs((0, 0), (3, 7))
    assert with_origin(epochs((0, 3), (3, 7))) == epochs((0, 0), (3, 7))
    full = tuple(Epoch(number, number) for number in range(1, MAX_EPOCHS + 1))
    assert with_origin(full) == (Epoch(0, 0), *full[1:])
