"""A controller asked over real connections, as brokers and mqadmin do."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.controller.elections import START_WAIT_MS
from rocketpy.errors import ClosedError, StoreLockedError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.codes import ResponseCode as Code
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import SystemClock

LOOPBACK = RemotingServerConfig(bind_address="127.0.0.1")
NAMES = {"clusterName": "c1", "brokerName": "broker-a"}
TIMEOUT_MS = 60_000


def config_of(path: Path, **settings: Any) -> ControllerConfig:
    return ControllerConfig(
        controller_store_path=str(path / "controller"),
        controller_listen_port=0,
        server=LOOPBACK,
        **settings,
    )


class Replica:
    """Broker as far as a controller sees it, with a connection and a port for notifications."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.client = RemotingClient(
            RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1)
        )
        self.server = RemotingServer(LOOPBACK, clock=SystemClock())
        self.notices: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.server.register(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._take)
        self.hands_over = True
        self.id = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _take(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        self.notices.put_nowait(request)
        code = Code.SUCCESS if self.hands_over else Code.SYSTEM_ERROR
        return make_response(request, code)

    async def ask(self, code: int, body: object = None, **fields: object) -> RemotingCommand:
        texts = {name: str(value).lower() if value in {True, False} else str(value)
                 for name, value in {**NAMES, **fields}.items()}  # fmt: skip
        data = b"" if body is None else orjson.dumps(body)
        request = make_request(code, texts, data)
        return await self.client.invoke(self.controller.address, request, TIMEOUT_MS)

    async def join(self) -> RemotingCommand:
        """Get an id and register, as a broker that starts."""
        await self.server.start()
        given = await self.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        self.id = int(given.ext_fields["nextBrokerId"])
        applied = await self.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=self.id,
            registerCheckCode=f"{self.address};1",
        )
        assert applied.code == 0, applied.remark
        return await self.register()

    async def register(self) -> RemotingCommand:
        registered = await self.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, brokerId=self.id, brokerAddress=self.address
        )
        assert registered.code == 0, registered.remark
        return registered

    async def beat(self, *, end: int = 0, **fields: object) -> RemotingCommand:
        return await self.ask(
            RequestCode.BROKER_HEARTBEAT,
            brokerId=self.id,
            brokerAddr=self.address,
            epoch=0,  # no election is in its log yet
            maxOffset=end,
            confirmOffset=end,
            heartbeatTimeoutMills=10_000,
            electionPriority=2_147_483_647,
            **fields,
        )

    async def elect(self, **fields: object) -> RemotingCommand:
        asked: dict[str, object] = {"brokerId": self.id, "designateElect": False, **fields}
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, **asked)

    async def alter(self, members: list[int], epoch: int, *, master_epoch: int = 1):
        return await self.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            {"syncStateSet": members, "syncStateSetEpoch": epoch},
            masterBrokerId=self.id,
            masterEpoch=master_epoch,
        )

    async def info(self) -> tuple[Mapping[str, str], Any]:
        response = await self.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO)
        fields = {key: text for key, text in response.ext_fields.items() if key != "rocketpy"}
        return fields, orjson.loads(response.body)

    async def close(self) -> None:
        await self.client.close()
        await self.server.stop()


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    started = Controller(config_of(tmp_path), clock=SystemClock())
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def pair(controller: Controller) -> AsyncIterator[tuple[Replica, Replica]]:
    """Return a master and a slave that is in its sync-state set."""
    one, two = Replica(controller), Replica(controller)
    await one.join()
    await one.beat(end=100)
    elected = await one.elect()
    assert elected.code == 0, elected.remark
    await two.join()
    await two.beat(end=100)
    assert (await one.alter([1, 2], 1)).code == 0
    yield one, two
    await one.close()
    await two.close()


async def test_start_of_a_broker_is_answered_as_by_apache(controller: Controller) -> None:
    one = Replica(controller)
    registered = await one.join()
    assert "masterBrokerId" not in registered.ext_fields
    assert orjson.loads(registered.body) == {"syncStateSet": [], "syncStateSetEpoch": 0}
    await one.beat()
    elected = await one.elect()
    assert elected.ext_fields["masterBrokerId"] == "1"
    assert elected.ext_fields["masterAddress"] == one.address
    assert elected.ext_fields["masterEpoch"] == "1"
    assert elected.ext_fields["syncStateSetEpoch"] == "1"
    assert orjson.loads(elected.body) == {
        "brokerMemberGroup": {
            "brokerAddrs": {"1": one.address}, "brokerName": "broker-a", "cluster": "c1",
        },
        "syncStateSet": [1],
    }  # fmt: skip
    again = await one.elect()
    assert again.code == Code.CONTROLLER_MASTER_STILL_EXIST
    assert again.ext_fields["masterBrokerId"] == "1"
    metadata = await one.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert metadata.ext_fields["controllerLeaderAddress"] == controller.address
    assert metadata.ext_fields["isLeader"] == "true"
    assert metadata.ext_fields["peers"] == f"n0:{controller.address};"
    await one.close()


async def test_second_replica_learns_the_master(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    registered = await two.register()
    assert registered.ext_fields["masterBrokerId"] == "1"
    assert registered.ext_fields["masterAddress"] == one.address
    header, body = await two.info()
    assert header["masterEpoch"] == "1"
    assert body == {"syncStateSet": [1, 2], "syncStateSetEpoch": 2}
    await two.beat()
    response = await two.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, ["broker-a", "unknown"])
    (info,) = orjson.loads(response.body)["replicasInfoTable"].values()
    assert [each["brokerId"] for each in info["inSyncReplicas"]] == [1, 2]
    assert [each["alive"] for each in info["inSyncReplicas"]] == [True, True]
    assert info["notInSyncReplicas"] == []


async def notice_of(replica: Replica) -> RemotingCommand:
    async with asyncio.timeout(60):
        return await replica.notices.get()


async def test_closed_connection_of_the_master_elects_the_slave(
    pair: tuple[Replica, Replica],
) -> None:
    one, two = pair
    await notice_of(one)  # of the first election
    await one.client.close()
    notice = await notice_of(two)
    assert notice.ext_fields["masterBrokerId"] == "2"
    assert notice.ext_fields["masterEpoch"] == "2"
    assert orjson.loads(notice.body) == {"syncStateSet": [2], "syncStateSetEpoch": 3}
    header, body = await two.info()
    assert header["masterAddress"] == two.address
    assert body["syncStateSet"] == [2]


async def test_heartbeat_is_answered_with_the_master_and_the_lease(
    pair: tuple[Replica, Replica],
) -> None:
    one, two = pair
    answer = await one.beat(rocketpyNeedsAll=True, rocketpyEpoch=1, rocketpyMaster=1)
    assert answer.ext_fields["leaseMs"] == "10000"
    assert answer.ext_fields["masterBrokerId"] == "1"
    assert orjson.loads(answer.body) == {"syncStateSet": [1, 2], "syncStateSetEpoch": 2}
    answer = await two.beat()
    assert "leaseMs" not in answer.ext_fields
    assert answer.ext_fields["masterAddress"] == one.address


async def test_stale_requests_of_a_master_are_fenced(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    assert (await one.alter([1], 1)).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert (await one.alter([1], 2, master_epoch=0)).code == Code.CONTROLLER_FENCED_MASTER_EPOCH
    assert (await two.alter([2], 2)).code == Code.CONTROLLER_INVALID_MASTER
    altered = await one.alter([1], 2)
    assert altered.ext_fields["newSyncStateSetEpoch"] == "3"
    assert orjson.loads(altered.body) == {"syncStateSet": [1], "syncStateSetEpoch": 3}


async def test_hand_over_elects_the_other_member(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    elected = await one.elect(rocketpyHandOver=True)
    assert elected.code == 0, elected.remark
    assert elected.ext_fields["masterBrokerId"] == "2"


@pytest.mark.parametrize("hands_over", [True, False])
async def test_operator_elects_after_the_master_has_handed_over(
    pair: tuple[Replica, Replica], hands_over: bool
) -> None:
    one, two = pair
    await notice_of(one)
    await one.beat(rocketpyNeedsAll=False)
    one.hands_over = hands_over
    elected = await two.elect(designateElect=True)
    asked = await notice_of(one)
    assert asked.ext_fields["rocketpyHandOver"] == "true"
    if hands_over:
        assert elected.ext_fields["masterBrokerId"] == "2"
    else:
        assert elected.code == Code.CONTROLLER_ELECT_MASTER_FAILED
        assert "lease" in (elected.remark or "")


async def test_master_that_starts_again_is_elected_again(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    await two.client.close()
    await one.alter([1], 2)
    registered = await one.register()
    assert "masterBrokerId" not in registered.ext_fields
    await one.beat(end=50)
    async with asyncio.timeout(60):
        while (await one.info())[0].get("masterEpoch") != "2":  # noqa: ASYNC110 - over the network
            await asyncio.sleep(0.01)
    assert (await one.info())[0]["masterBrokerId"] == "1"


async def test_state_survives_a_restart(
    controller: Controller, pair: tuple[Replica, Replica], tmp_path: Path
) -> None:
    before = await pair[1].info()
    with pytest.raises(StoreLockedError):
        await Controller(config_of(tmp_path), clock=SystemClock()).start()
    await controller.stop()
    assert [each.code for each in controller.not_ready()] == ["stopping"]
    again = Controller(config_of(tmp_path), clock=SystemClock())
    await again.start()
    try:
        with pytest.raises(ClosedError, match="already"):
            await again.start()
        for each in pair:
            each.controller = again
        assert await pair[1].info() == before
        # No master is elected before the replicas have been heard.
        await pair[1].beat()
        waiting = await pair[1].elect()
        assert waiting.code == Code.CONTROLLER_ELECT_MASTER_FAILED
        await pair[0].beat()
        assert (await pair[1].elect()).code == Code.CONTROLLER_MASTER_STILL_EXIST
    finally:
        await again.stop()


async def test_other_address_is_refused_until_replicas_could_be_heard_after_a_start(
    controller: Controller, pair: tuple[Replica, Replica], tmp_path: Path
) -> None:
    """A copy of a directory must not be quicker than the first heartbeat of its original."""
    await controller.stop()
    again = Controller(config_of(tmp_path), clock=SystemClock())
    await again.start()
    copy = Replica(again)
    copy.id = pair[1].id
    try:
        await copy.server.start()
        answer = await copy.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, brokerId=copy.id, brokerAddress=copy.address
        )
        assert answer.code == Code.CONTROLLER_INVALID_REQUEST
        again._context.decisions.start(-START_WAIT_MS)
        await copy.register()
    finally:
        await copy.close()
        await again.stop()


async def test_replicas_that_are_gone_are_removed(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    clean = RequestCode.CLEAN_BROKER_DATA
    alive = await one.ask(clean, brokerControllerIdsToClean="2", isCleanLivingBroker=False)
    assert alive.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert (await one.ask(clean, brokerControllerIdsToClean="x")).code == Code.SYSTEM_ERROR
    assert (await one.ask(clean, brokerControllerIdsToClean="1;" * 99)).code == Code.SYSTEM_ERROR
    removed = await one.ask(clean, brokerControllerIdsToClean="2;", isCleanLivingBroker=True)
    assert removed.code == 0, removed.remark
    assert (await one.info())[1] == {"syncStateSet": [1], "syncStateSetEpoch": 3}
    assert (await one.ask(clean, isCleanLivingBroker=True)).code == 0
    unknown = await one.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    assert unknown.code == Code.CONTROLLER_BROKER_METADATA_NOT_EXIST


async def test_heartbeats_of_strangers_have_no_effect(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    stranger = Replica(one.controller)
    await stranger.server.start()
    for number in (1, 7):
        stranger.id = number
        answer = await stranger.beat(end=1 << 40)
        assert answer.code == 0
        assert "masterBrokerId" not in answer.ext_fields
    await stranger.close()
    assert (await one.info())[0]["masterBrokerId"] == "1"


async def test_live_settings_change_over_the_wire(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    update = RequestCode.UPDATE_CONTROLLER_CONFIG
    request = make_request(update, {}, b"enableElectUncleanMaster=true")
    response = await one.client.invoke(one.controller.address, request, TIMEOUT_MS)
    assert response.code == 0
    shown = await one.ask(RequestCode.GET_CONTROLLER_CONFIG)
    assert b"enableElectUncleanMaster=true" in shown.body
    for body, code in {
        b"controllerStorePath=/tmp/x": Code.NO_PERMISSION,
        b"enableElectUncleanMaster=perhaps": Code.INVALID_PARAMETER,
    }.items():
        request = make_request(update, {}, body)
        response = await one.client.invoke(one.controller.address, request, TIMEOUT_MS)
        assert response.code == code


async def test_malformed_bodies_are_refused(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    for body in ({"a": 1}, [1], "x"):
        response = await one.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body)
        assert response.code == Code.SYSTEM_ERROR
    response = await one.ask(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {"syncStateSet": ["x"]},
        masterBrokerId=1, masterEpoch=1,
    )  # fmt: skip
    assert response.code == Code.SYSTEM_ERROR
