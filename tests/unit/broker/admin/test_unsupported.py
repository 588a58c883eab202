import pytest

from rocketpy.broker.admin.unsupported import UnsupportedAdmin
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_a_master_without_slaves(kit: Kit) -> None:
    found = loads(ask(kit.admin(UnsupportedAdmin).ha_status).body)
    assert found["master"] is True
    assert found["haConnectionInfo"] == []
    assert found["masterCommitLogMaxOffset"] == 5_000


def test_a_master_has_no_master_flush_offset(kit: Kit) -> None:
    admin = kit.admin(UnsupportedAdmin)
    assert ask(admin.reset_master_flush_offset, {"masterFlushOffset": 0}).code == 0


def test_no_cold_data(kit: Kit) -> None:
    found = loads(ask(kit.admin(UnsupportedAdmin).cold_data).body)
    assert found == {"configTable": {}, "globalAcc": 0, "runtimeTable": {}}


@pytest.mark.parametrize("code", [1007, 2001, 2002, 2004, *range(3001, 3011)])
def test_refused_codes(kit: Kit, code: int) -> None:
    response = ask(kit.admin(UnsupportedAdmin).processors()[code])
    assert response.code == 1
    assert response.remark
