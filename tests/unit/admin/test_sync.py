"""The admin without `await`: the same names, on a thread that ends with it."""

import inspect
import threading
from collections.abc import Iterator

import pytest

from rocketpy.admin import Admin as AsyncAdmin
from rocketpy.admin import connect as connect_async
from rocketpy.admin.sync import Admin, connect
from rocketpy.client.blocking.loop_thread import NAME, LoopThread
from rocketpy.errors import ClosedError, ConnectError, NoNameServerError
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import FakeRemoting


def threads() -> int:
    return sum(each.name == NAME for each in threading.enumerate())


@pytest.fixture
def blocking(admin: AsyncAdmin) -> Iterator[Admin]:
    before = threads()
    with Admin(LoopThread(), admin) as blocking:
        yield blocking
    blocking.close()
    assert threads() == before


def test_operations_are_waited_for(blocking: Admin, remoting: FakeRemoting) -> None:
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert blocking.ping_broker("somewhere:1") >= 0
    remoting.down = {"somewhere:1"}
    with pytest.raises(ConnectError):
        blocking.ping_broker("somewhere:1")
    blocking.close()
    with pytest.raises(ClosedError):
        blocking.ping_broker("somewhere:1")


def test_every_operation_is_there_with_what_it_takes() -> None:
    names = {name for name in dir(AsyncAdmin) if not name.startswith("_")} - {"servers"}
    assert names == {name for name in dir(Admin) if not name.startswith("_")}
    for name in names - {"close"}:
        own, namesake = getattr(Admin, name), getattr(AsyncAdmin, name)
        assert own.__doc__ == namesake.__doc__
        assert inspect.signature(own) == inspect.signature(namesake), name
    assert inspect.signature(connect) == inspect.signature(connect_async)


def test_blocking_connect_starts_and_ends_a_thread() -> None:
    before = threads()
    with connect("127.0.0.1:1", timeout=0.1) as admin:
        assert threads() == before + 1
        with pytest.raises(NoNameServerError):
            admin.topics()
    assert threads() == before
