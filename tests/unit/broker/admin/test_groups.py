"""Creating, changing and deleting consumer groups."""

import pytest

from rocketpy.broker.admin.groups import GroupAdmin
from rocketpy.errors import BadBodyError, StoreError
from rocketpy.proto.wire.fastjson import dumps, loads
from tests.unit.broker.admin.kit import Kit, ask


def test_groups_create_keeps_all_fields(kit: Kit) -> None:
    admin = kit.admin(GroupAdmin)
    body = dumps({"groupName": "G", "consumeBroadcastEnable": False, "retryMaxTimes": 3})
    assert ask(admin.update, body=body).code == 0
    group = kit.groups.get("G")
    assert group is not None
    assert (group.consume_broadcast_enable, group.retry_max_times) == (False, 3)
    assert group.consume_enable


@pytest.mark.parametrize("name", ["../g", "", "a b", "x" * 200])
def test_groups_invalid_name_is_refused(kit: Kit, name: str) -> None:
    assert ask(kit.admin(GroupAdmin).update, body=dumps({"groupName": name})).code == 29
    assert kit.groups.get(name) is None


def test_groups_retry_queues_are_bounded(kit: Kit) -> None:
    body = dumps({"groupName": "G", "retryQueueNums": 1_000_000})
    assert ask(kit.admin(GroupAdmin).update, body=body).code == 29


def test_groups_configuration_size_is_bounded(kit: Kit) -> None:
    body = dumps({"groupName": "G", "attributes": {"x": "y" * 70_000}})
    assert ask(kit.admin(GroupAdmin).update, body=body).code == 29
    assert kit.groups.get("G") is None


def test_groups_invalid_body_is_an_error(kit: Kit) -> None:
    with pytest.raises(BadBodyError):
        ask(kit.admin(GroupAdmin).update, body=b"[]")


def test_groups_update_list_creates_all_or_none(kit: Kit) -> None:
    admin = kit.admin(GroupAdmin)
    good, bad = {"groupName": "G1"}, {"groupName": "../G2"}
    assert ask(admin.update_list, body=dumps({"groupConfigList": [good, bad]})).code == 29
    assert kit.groups.get("G1") is None
    assert ask(admin.update_list, body=dumps({"groupConfigList": [good]})).code == 0
    assert kit.groups.get("G1") is not None


def test_groups_update_list_is_one_write(kit: Kit) -> None:
    admin = kit.admin(GroupAdmin)
    body = dumps({"groupConfigList": [{"groupName": f"G{n}"} for n in range(5)]})
    kit.groups_file.failure = StoreError("no space")
    with pytest.raises(StoreError):
        ask(admin.update_list, body=body)
    assert kit.groups.get("G0") is None

    kit.groups_file.failure = None
    saves = kit.groups_file.saves
    assert ask(admin.update_list, body=body).code == 0
    assert kit.groups_file.saves == saves + 1
    assert kit.groups.get("G4") is not None


def test_groups_get_all_and_get_one(kit: Kit) -> None:
    admin = kit.admin(GroupAdmin)
    kit.groups.get_or_create("G")
    response = ask(admin.get_all)
    table = loads(response.body)
    assert table["subscriptionGroupTable"]["G"]["groupName"] == "G"
    assert table["forbiddenTable"] == {}
    assert response.ext_fields["totalGroupNum"] == str(len(table["subscriptionGroupTable"]))
    page = loads(ask(admin.get_all, {"groupSeq": 1, "maxGroupNum": 2}).body)
    assert list(page["subscriptionGroupTable"]) == list(table["subscriptionGroupTable"])[1:3]
    assert loads(ask(admin.get_one, {"group": "G"}).body)["groupName"] == "G"
    missing = ask(admin.get_one, {"group": "Nope"})
    assert (missing.code, missing.remark) == (26, "No group in this broker. group: Nope")


@pytest.mark.parametrize(
    ("ext", "is_kept"),
    [({}, True), ({"cleanOffset": "true"}, False), ({"removeOffset": "true"}, False)],
)
def test_groups_delete_removes_offsets_if_requested(
    kit: Kit, ext: dict[str, str], is_kept: bool
) -> None:
    kit.groups.get_or_create("G")
    kit.offsets.commit("G", "T", 0, 9)
    kit.stats.inc_get("G", "T", 1, 1)
    assert ask(kit.admin(GroupAdmin).delete, {"groupName": "G", **ext}).code == 0
    assert kit.groups.get("G") is None
    assert (kit.offsets.query("G", "T", 0) == 9) is is_kept
    assert kit.stats.stats_data("GROUP_GET_NUMS", "T@G") is None


def test_groups_forbidden_is_read_and_changed(kit: Kit) -> None:
    admin = kit.admin(GroupAdmin)
    kit.groups.get_or_create("G")
    ext = {"group": "G", "topic": "T"}
    assert loads(ask(admin.forbidden, ext).body) == {**ext, "readable": True}
    assert loads(ask(admin.forbidden, {**ext, "readable": "false"}).body)["readable"] is False
    assert kit.groups.is_forbidden("G", "T")
    assert loads(ask(admin.forbidden, {**ext, "readable": "true"}).body)["readable"] is True
    assert ask(admin.forbidden, {"group": "Nope", "topic": "T", "readable": "false"}).code == 26
    assert ask(admin.forbidden, {"group": "G", "topic": "../", "readable": "false"}).code == 29
