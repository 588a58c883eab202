"""Reset, clone, comparison and dump of consumer offsets."""

import pytest

from rocketpy.broker.admin.offsets import OffsetAdmin
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import LanguageCode
from rocketpy.proto.wire.command import make_request
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import FakeChannel, Kit, ask

RESET = {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true"}


def filled(kit: Kit) -> OffsetAdmin:
    kit.add_topic("T", 2)
    kit.store.fill("T", 0, 10, first_ms=1_000)
    kit.store.fill("T", 1, 4, first_ms=2_000)
    kit.groups.get_or_create("G")
    kit.offsets.commit("G", "T", 0, 6)
    kit.offsets.commit("G", "T", 1, 4)
    return kit.admin(OffsetAdmin)


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        ({}, {0: 10, 1: 4}),
        ({"timestamp": 0}, {0: 0, 1: 0}),
        ({"timestamp": 1_035}, {0: 4, 1: 0}),
        ({"timestamp": 1_035, "queueId": 0}, {0: 4}),
        ({"queueId": 0, "offset": 7}, {0: 7}),
    ],
)
def test_offsets_reset_is_stored_for_next_pull(
    kit: Kit, ext: dict[str, int], expected: dict[int, int]
) -> None:
    response = ask(filled(kit).reset, {**RESET, **ext})
    table = loads(response.body)["offsetTable"]
    assert table == {MessageQueue("T", "b", queue): at for queue, at in expected.items()}
    for queue, at in expected.items():
        assert kit.offsets.has_reset("G", "T", queue)
        assert kit.offsets.take_reset("G", "T", queue) == at


@pytest.mark.parametrize(
    ("ext", "code"),
    [
        ({"topic": "Nope"}, 17),
        ({"group": "Nope"}, 26),
        ({"queueId": 9}, 29),
        ({"queueId": 0, "offset": 99}, 1),
    ],
)
def test_offsets_invalid_reset_is_refused(kit: Kit, ext: dict[str, object], code: int) -> None:
    assert ask(filled(kit).reset, {**RESET, **ext}).code == code
    assert not kit.offsets.has_reset("G", "T", 0)


def test_offsets_reset_by_clients_sends_220_to_each_member() -> None:
    kit = Kit(use_server_side_reset_offset=False)
    admin = filled(kit)
    channel = kit.add_consumer("G", "T")
    response = ask(admin.reset, {**RESET, "timestamp": 0})
    table = loads(response.body)["offsetTable"]
    assert table == {MessageQueue("T", "b", 0): 0, MessageQueue("T", "b", 1): 0}
    assert not kit.offsets.has_reset("G", "T", 0)
    (pushed,) = channel.oneways
    assert pushed.code == 220
    assert pushed.ext_fields == {
        "topic": "T",
        "group": "G",
        "timestamp": "0",
        "isForce": "false",
        "queueId": "-1",
    }
    assert loads(pushed.body)["offsetTable"] == table


def test_offsets_reset_by_clients_without_force_never_moves_forward() -> None:
    kit = Kit(use_server_side_reset_offset=False)
    admin = filled(kit)
    kit.add_consumer("G", "T")
    response = ask(admin.reset, {**RESET, "isForce": "false"})
    assert loads(response.body)["offsetTable"][MessageQueue("T", "b", 0)] == 6


def test_offsets_reset_by_clients_without_members_is_refused() -> None:
    kit = Kit(use_server_side_reset_offset=False)
    response = ask(filled(kit).reset, RESET)
    assert response.code == 206
    assert response.remark is not None
    assert response.remark.startswith("Consumer not online")


def test_offsets_reset_by_clients_answers_cpp_tools_with_lists() -> None:
    kit = Kit(use_server_side_reset_offset=False)
    admin = filled(kit)
    channel = kit.add_consumer("G", "T")
    request = make_request(222, {key: str(value) for key, value in RESET.items()})
    request.language = LanguageCode.CPP
    assert admin.reset(FakeChannel(), request).code == 0  # type: ignore[arg-type]
    listed = loads(channel.oneways[0].body)["offsetTable"]
    assert {"brokerName": "b", "offset": 10, "queueId": 0, "topic": "T"} in listed


def test_offsets_correction_returns_smallest_by_queue(kit: Kit) -> None:
    admin = filled(kit)
    kit.offsets.commit("H", "T", 0, 3)
    kit.offsets.commit("I", "T", 0, 1)
    ext = {"topic": "T", "compareGroup": "G", "filterGroups": "I"}
    found = loads(ask(admin.correction, ext).body)["correctionOffsets"]
    assert found == {"0": 3, "1": 4}
    found = loads(ask(admin.correction, {**ext, "filterGroups": "H,I"}).body)
    assert found["correctionOffsets"] == {"0": 6, "1": 4}


def test_offsets_correction_marks_queues_with_compared_group_behind(kit: Kit) -> None:
    admin = filled(kit)
    kit.offsets.commit("late", "T", 0, 1)
    ext = {"topic": "T", "compareGroup": "late", "filterGroups": "late"}
    found = loads(ask(admin.correction, ext).body)["correctionOffsets"]
    assert found["0"] == (1 << 63) - 1


def test_offsets_clone_copies_to_other_group(kit: Kit) -> None:
    admin = filled(kit)
    kit.add_topic("U", 1)
    kit.offsets.commit("G", "U", 0, 2)
    ext = {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}
    assert ask(admin.clone, ext).code == 0
    assert kit.offsets.query_all("H", "T") == {0: 6, 1: 4}
    assert kit.offsets.query_all("H", "U") == {}
    assert ask(admin.clone, {**ext, "topic": ""}).code == 0
    assert kit.offsets.query_all("H", "U") == {0: 2}
    assert ask(admin.clone, {**ext, "destGroup": "../"}).code == 29


def test_offsets_dump_equals_file(kit: Kit) -> None:
    admin = filled(kit)
    dumped = loads(ask(admin.dump).body)
    assert dumped["offsetTable"] == {"T@G": {"0": 6, "1": 4}}


def test_offsets_dump_since_a_mark_has_new_commits_only(kit: Kit) -> None:
    admin = filled(kit)
    first = ask(admin.dump, {"rocketpySince": ""})
    assert loads(first.body)["offsetTable"] == {"T@G": {"0": 6, "1": 4}}
    mark = first.ext_fields["rocketpyMark"]
    assert loads(ask(admin.dump, {"rocketpySince": mark}).body)["offsetTable"] == {}
    assert "rocketpyMark" not in ask(admin.dump).ext_fields
