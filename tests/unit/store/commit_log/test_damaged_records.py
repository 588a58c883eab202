import pytest

from rocketpy.store.commit_log import damaged_records as known_damage
from rocketpy.store.commit_log.damaged_records import DamagedRecords


def test_damage_ends_what_can_be_read_without_a_look() -> None:
    damage = DamagedRecords()
    assert damage.end_without(0, 100) == 100
    assert damage.add(50)
    assert damage.add(20)
    assert not damage.add(20)
    assert damage.places == {20, 50}
    assert damage.end_without(0, 100) == 20
    assert damage.end_without(20, 100) == 20
    assert damage.end_without(21, 100) == 50
    assert damage.end_without(21, 40) == 40
    assert damage.end_without(51, 100) == 100


def test_nothing_is_said_of_records_once_too_many_are_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_damage, "_MAX_REMEMBERED", 2)
    damage = DamagedRecords()
    assert [damage.add(each) for each in (1, 2, 3)] == [True, True, False]
    assert damage.end_without(10, 100) == 10
