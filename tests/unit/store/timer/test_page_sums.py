"""Check sums of pages: what differs is found, and nothing else."""

from rocketpy.store.timer.wheel import PageSums


def test_pages_that_differ_are_found_with_those_of_their_group() -> None:
    sums = PageSums(25)
    sums.note(3, b"three")
    sums.note(14, b"fourteen")
    before = sums.encode()
    assert len(before) == 3 * 4
    assert list(sums.differing(before)) == []
    sums.note(14, None)
    assert list(sums.differing(before)) == list(range(10, 20))
    sums.note(14, b"fourteen")
    sums.note(24, b"new")
    assert list(sums.differing(before)) == list(range(20, 25))


def test_pages_do_not_stand_for_each_other() -> None:
    sums = PageSums(20)
    sums.note(3, b"x")
    before = sums.encode()
    sums.note(3, None)
    sums.note(4, b"x")
    assert list(sums.differing(before)) == list(range(10))


def test_no_pages_are_zeros_and_sums_of_another_length_say_nothing() -> None:
    sums = PageSums(9_450)
    assert sums.encode() == bytes(945 * 4)
    sums.note(0, b"x")
    assert list(sums.differing(b"")) == []
    assert list(sums.differing(bytes(944 * 4))) == []
