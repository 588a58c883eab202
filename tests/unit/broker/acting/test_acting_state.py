"""Slaves that act as master."""

import pytest

from rocketpy.broker.acting.acting_state import HAND_OVER_MS, ActingState, State


def test_slave_with_lowest_id_acts_until_lower_id_is_back() -> None:
    machine = ActingState(1)
    assert not machine.members({0, 1, 2}, 0)
    assert machine.members({1, 2}, 1)
    assert (machine.is_acting, machine.delivers) == (True, True)
    assert not machine.members({1}, 2)
    assert machine.members({0, 1}, 3)
    assert (machine.is_acting, machine.delivers) == (False, False)


def test_second_slave_acts_only_without_the_first() -> None:
    machine = ActingState(2)
    assert not machine.members({1, 2}, 0)
    assert machine.members({2}, 1)
    assert machine.members({1, 2}, 2)
    assert machine.state is State.FOLLOWING


@pytest.mark.parametrize("start", [{0, 1}, {1}])
def test_unregistered_slave_keeps_its_state(start: set[int]) -> None:
    machine = ActingState(1)
    machine.members(start, 0)
    before = machine.state
    assert not machine.members(set(), 1)
    assert not machine.members({2}, 2)
    assert machine.state is before


def test_handing_over_slave_delivers_again_when_its_master_is_silent() -> None:
    machine = ActingState(1)
    assert not machine.master_asks(0), "a slave that follows has nothing to hand over"
    machine.members({1}, 0)
    assert machine.master_asks(10)
    assert (machine.is_acting, machine.delivers) == (True, False)
    assert not machine.members({1}, 9 + HAND_OVER_MS)
    assert not machine.master_asks(1_000)
    assert not machine.members({1}, 10 + HAND_OVER_MS), "it asked again meanwhile"
    assert machine.members({1}, 1_000 + HAND_OVER_MS)
    assert machine.state is State.ACTING


def test_handing_over_slave_follows_the_registered_master() -> None:
    machine = ActingState(1)
    machine.members({1}, 0)
    machine.master_asks(0)
    assert machine.members({0, 1}, 1)
    assert machine.state is State.FOLLOWING
