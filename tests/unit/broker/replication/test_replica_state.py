"""States of a slave."""

import pytest

from rocketpy.broker.replication.replica_state import (
    LONGEST_PAUSE_MS,
    REFUSED_STATES,
    TRANSITIONS,
    Event,
    ReplicaState,
    State,
    event_of,
)
from rocketpy.proto.replication.pair_frames import Refusal


def at(*events: Event) -> ReplicaState:
    state = ReplicaState()
    for event in events:
        state.on(event)
    return state


def test_replica_that_is_accepted_streams() -> None:
    state = at(Event.MASTER_KNOWN, Event.CONNECTED, Event.ACCEPTED)

    assert state.state is State.STREAMING
    assert state.is_connected


def test_classic_master_is_followed_without_a_handshake() -> None:
    assert at(Event.MASTER_KNOWN, Event.ACCEPTED).state is State.STREAMING


def test_stalled_replica_is_connected_and_streams_again() -> None:
    state = at(Event.MASTER_KNOWN, Event.ACCEPTED, Event.WRITE_FAILED)
    assert (state.state, state.is_connected) == (State.STALLED, True)

    assert state.on(Event.WRITE_SUCCEEDED) is State.STREAMING


@pytest.mark.parametrize("refusal", Refusal)
def test_every_refusal_leads_to_a_refused_state_that_is_retried(refusal: Refusal) -> None:
    state = at(Event.MASTER_KNOWN, Event.CONNECTED)

    assert state.on(event_of(refusal), "why") in REFUSED_STATES
    assert state.reason == "why"
    assert state.on(Event.RETRIED) is State.CONNECTING


def test_same_refusal_is_news_once() -> None:
    state = at(Event.MASTER_KNOWN)
    news = []
    for _ in range(3):
        state.on(Event.CONNECTED)
        state.on(Event.BEYOND_END, "beyond")
        news.append(state.is_new)
        state.on(Event.RETRIED)
    state.on(Event.CONNECTED)
    state.on(Event.BEHIND_RANGE, "behind")

    assert news == [True, False, False]
    assert state.is_new


def test_refusal_after_an_acceptance_is_news_again() -> None:
    state = at(Event.MASTER_KNOWN, Event.CONNECTED)
    state.on(Event.REFUSED, "no")
    for event in (Event.RETRIED, Event.CONNECTED, Event.ACCEPTED, Event.LOST, Event.CONNECTED):
        state.on(event)
    state.on(Event.REFUSED, "no")

    assert state.is_new


def test_pause_doubles_until_data_arrives() -> None:
    state = ReplicaState()

    pauses = [state.pause_ms() for _ in range(7)]
    state.data_arrived()

    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, LONGEST_PAUSE_MS, LONGEST_PAUSE_MS]
    assert state.pause_ms() == 1_000


def test_pauses_are_short_at_first_after_an_election() -> None:
    state = ReplicaState(first_pause_ms=20, first_pauses=3)

    pauses = [state.pause_ms() for _ in range(5)]
    state.data_arrived()
    after_data = [state.pause_ms() for _ in range(2)]
    state.master_elected()

    assert pauses == [20, 20, 20, 40, 80]
    assert after_data == [20, 40]
    assert [state.pause_ms() for _ in range(4)] == [20, 20, 20, 40]


def test_impossible_event_is_an_error() -> None:
    with pytest.raises(KeyError):
        ReplicaState().on(Event.ACCEPTED)


def test_every_state_is_reached_and_left() -> None:
    reached = set(TRANSITIONS.values())
    left = {before for before, _ in TRANSITIONS}

    assert reached == left == set(State)
