"""The table of requests, their processors and pools."""

from typing import Any

import pytest

from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.business_pool import BusinessPool
from tests.unit.broker.fakes import FakeChannel, FakeClock, request


class Server:
    """Remembers what was registered."""

    def __init__(self) -> None:
        self.routes: dict[int, tuple[Any, BusinessPool | None]] = {}

    def register(self, code: int, processor: Any, pool: BusinessPool | None) -> None:
        self.routes[code] = processor, pool


def pools() -> dict[str, BusinessPool]:
    return {kind: BusinessPool(kind, 0, 10, 0, clock=FakeClock()) for kind in ("send", "pull")}


def fine(_channel: object, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0)


def test_request_table_routes_codes_to_processors_and_pools() -> None:
    of_kind = pools()
    table = RequestTable(of_kind)
    table.add("send", {10: fine, 310: fine})
    table.add("pull", {11: fine})
    main, fast = Server(), Server()
    table.register_on(main)  # type: ignore[arg-type]
    table.register_on(fast, without={11})  # type: ignore[arg-type]
    assert main.routes == {
        10: (fine, of_kind["send"]),
        310: (fine, of_kind["send"]),
        11: (fine, of_kind["pull"]),
    }
    assert set(fast.routes) == {10, 310}


def test_request_table_code_has_one_processor() -> None:
    table = RequestTable(pools())
    table.add("send", {10: fine})
    with pytest.raises(AssertionError):
        table.add("pull", {10: fine})


def test_request_table_guard_precedes_every_processor() -> None:
    seen: list[int] = []

    def guard(_channel: object, command: RemotingCommand) -> RemotingCommand | None:
        seen.append(command.code)
        return make_response(command, 16, "not you") if command.code == 310 else None

    table = RequestTable(pools(), guard)
    table.add("send", {10: fine, 310: fine})
    table.add("pull", {11: fine})
    server = Server()
    table.register_on(server)  # type: ignore[arg-type]
    codes = {
        code: processor(FakeChannel(), request(code)).code
        for code, (processor, _) in server.routes.items()
    }
    assert codes == {10: 0, 310: 16, 11: 0}
    assert sorted(seen) == [10, 11, 310]
