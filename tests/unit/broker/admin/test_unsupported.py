"""Requests of features that the broker does not have."""

import pytest

from rocketpy.broker.admin.unsupported import UnsupportedAdmin
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_unsupported_master_flush_offset_has_no_effect(kit: Kit) -> None:
    admin = kit.admin(UnsupportedAdmin)
    assert ask(admin.reset_master_flush_offset, {"masterFlushOffset": 0}).code == 0


def test_unsupported_cold_data_is_empty(kit: Kit) -> None:
    found = loads(ask(kit.admin(UnsupportedAdmin).cold_data).body)
    assert found == {"configTable": {}, "globalAcc": 0, "runtimeTable": {}}


@pytest.mark.parametrize("code", [1007, 2001, 2002, 2004, *range(3001, 3011)])
def test_unsupported_codes_are_refused(kit: Kit, code: int) -> None:
    response = ask(kit.admin(UnsupportedAdmin).processors()[code])
    assert response.code == 1
    assert response.remark
