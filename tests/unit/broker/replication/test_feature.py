"""Replication of a broker: built from settings, started and asked for its status."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import Replication, ReplicationNeeds
from rocketpy.errors import ConfigError, ProtocolError, StartError
from rocketpy.proto.bodies.stats import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, TlsClientConfig, TlsServerConfig
from rocketpy.remoting.network.socket_network import _context
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.replication.kit import (
    FILE_BYTES,
    MASTER,
    SECRET,
    SLAVE,
    FakeStore,
    World,
    run,
)


def build(world: World, store: FakeStore, role: str, *, host: str, **settings: Any) -> Replication:
    files = SimFiles()
    files.write_bytes(Path("/secret"), SECRET)
    broker = BrokerConfig(
        broker_name="b",
        broker_id=1 if role == "SLAVE" else 0,
        broker_ip1=host,
        bind_address=host,
        ha_listen_port=10_912,
    )
    replication = Replication(
        ReplicationNeeds(
            config=ReplicationConfig(**settings),
            broker=broker,
            store_config=MessageStoreConfig(
                broker_role=role, mapped_file_size_commit_log=FILE_BYTES
            ),
            store=store,
            files=files,
            identity=BrokerIdentity(broker),
            client=RemotingClient(
                RemotingClientConfig(),
                clock=world.clock,
                rng=random.Random(1),
                network=world.host(host),
            ),
            network=world.host(host),
            tls=(TlsServerConfig(), TlsClientConfig()),
            master=lambda: world.addresses,
            clock=world.clock,
            timer=lambda: 0.0,
            new_nonce=world.nonce,
            max_message_bytes=lambda: 4 << 20,
        )
    )
    if replication.client is not None:
        replication.client._ask_protocol = world._ask
    return replication


def rows(status: HARuntimeInfo) -> list[HAConnectionInfo]:
    return [HAConnectionInfo.from_json(each) for each in status.ha_connection_info]


PAIR = {"replication_secret_file": "/secret", "in_sync_replicas": 2}


def test_pair_copies_and_says_so() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(b"one", identity="x"), FakeStore()
        master = build(world, log, "SYNC_MASTER", host=MASTER, **PAIR)
        slave = build(world, copy, "SLAVE", host=SLAVE, **PAIR)
        await master.start()
        await slave.start()
        await world.until(lambda: log.replicas.confirmed == 3)

        status = HARuntimeInfo.decode(master.status.read().encode())
        assert (status.master, status.master_commit_log_max_offset) == (True, 3)
        assert (status.in_sync_slave_nums, status.pair_protocol) == (1, 1)
        assert (status.needed_replicas, status.confirmed_offset) == (2, 3)
        (row,) = rows(status)
        assert (row.slave_ack_offset, row.diff, row.in_sync) == (3, 0, True)
        assert (row.broker_id, row.state, row.protocol) == (1, "STREAMING", "pair")

        assert master.slave_has(1, 2)
        assert not master.slave_has(1, 3), "beyond what the slave received"
        assert not master.slave_has(2, 2), "no such slave"
        assert not slave.slave_has(1, 0)

        status = HARuntimeInfo.decode(slave.status.read().encode())
        found = HAClientInfo.from_json(status.ha_client_runtime_info)
        assert not status.master
        assert (found.master_addr, found.max_offset) == (f"{MASTER}:10912", 3)
        assert (found.state, found.protocol, found.is_activated) == ("STREAMING", "pair", True)
        await slave.stop()
        await world.until(lambda: not master.slave_has(1, 2))
        await master.stop()

    run(case)


def test_refused_slave_is_in_the_status_of_both() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(b"one", identity="x"), FakeStore(b"longer", identity="x")
        master = build(world, log, "SYNC_MASTER", host=MASTER, **PAIR)
        slave = build(world, copy, "SLAVE", host=SLAVE, **PAIR)
        await master.start()
        await slave.start()
        await world.until(lambda: bool(rows(master.status.read())))

        (row,) = rows(master.status.read())
        assert (row.state, row.in_sync, row.broker_id) == ("BEYOND_END", False, 1)
        assert row.reason is not None
        assert "beyond the master's end 3" in row.reason
        await world.until(
            lambda: slave.status.read().ha_client_runtime_info["state"] == "BEYOND_END"
        )
        assert slave.status.read().ha_client_runtime_info["reason"] == row.reason

    run(case)


@pytest.mark.parametrize("key", ["inSyncReplicas", "minInSyncReplicas"])
def test_copies_that_async_master_does_not_wait_for_are_warned_of(key: str) -> None:
    async def case(world: World) -> None:
        name = {"inSyncReplicas": "in_sync_replicas", "minInSyncReplicas": "min_in_sync_replicas"}
        found = build(world, FakeStore(identity="x"), "ASYNC_MASTER", host=MASTER, **{name[key]: 2})
        with capture_logs() as logs:
            await found.start()
        (line,) = [each for each in logs if each["event"] == "setting has no effect"]
        assert (line["key"], line["value"], line["log_level"]) == (key, 2, "warning")
        await found.stop()

    run(case)


def test_ha_port_names_the_setting_that_forbids_plain_text() -> None:
    async def case(world: World) -> None:
        master = build(world, FakeStore(identity="x"), "SYNC_MASTER", host=MASTER, **PAIR)
        endpoint = replace(master._endpoint(), plain_allowed=False)
        with pytest.raises(ProtocolError, match="plain text is refused: haTlsEnable is true"):
            _context(endpoint, is_tls=False)

    run(case)


def test_ha_port_that_is_taken_names_its_key() -> None:
    async def case(world: World) -> None:
        master = build(world, FakeStore(identity="x"), "SYNC_MASTER", host=MASTER, **PAIR)
        await master.start()
        other = build(world, FakeStore(identity="y"), "SYNC_MASTER", host=MASTER, **PAIR)
        with pytest.raises(StartError, match=r"is taken: .* or change haListenPort"):
            await other.start()
        await master.stop()

    run(case)


@pytest.mark.parametrize(
    ("role", "settings", "has_server"),
    [
        ("ASYNC_MASTER", {}, False),
        ("SYNC_MASTER", {}, False),
        ("SYNC_MASTER", {"in_sync_replicas": 2}, True),
        ("ASYNC_MASTER", {"ha_allowed_peers": "10.0.0.2"}, True),
    ],
)
def test_master_that_needs_no_slaves_has_no_port(
    role: str, settings: dict[str, Any], has_server: bool
) -> None:
    async def case(world: World) -> None:
        found = build(world, FakeStore(identity="x"), role, host=MASTER, **settings)
        assert (found.server is not None) is has_server
        assert found.send_refusal is None
        await found.start()
        assert bool(world.host(MASTER).listening) is bool(settings.get("ha_allowed_peers"))
        assert found.status.read().master
        await found.stop()

    run(case)


def test_refusal_of_sends_reaches_its_listener() -> None:
    async def case(world: World) -> None:
        heard: list[str | None] = []
        listen: Callable[[str | None], None] = heard.append
        settings = {**PAIR, "min_in_sync_replicas": 2}
        master = build(world, FakeStore(identity="x"), "SYNC_MASTER", host=MASTER, **settings)
        master.when_refusal_changes(listen)
        await master.start()
        assert heard == [master.send_refusal]

    run(case)


def test_tls_without_certificates_is_refused() -> None:
    async def case(world: World) -> None:
        with pytest.raises(ConfigError, match="haTlsEnable"):
            build(world, FakeStore(), "ASYNC_MASTER", host=MASTER, ha_tls_enable=True)

    run(case)


@pytest.mark.parametrize(("slave_timeout", "answered_ms"), [(3_000, 2_700), (1_000, 900), (1, 1)])
def test_sends_are_answered_a_little_before_producers_give_up(
    slave_timeout: int, answered_ms: int
) -> None:
    async def case(world: World) -> None:
        store = FakeStore(identity="x")
        build(world, store, "SYNC_MASTER", host=MASTER, **PAIR, slave_timeout=slave_timeout)
        assert store.replicas.timeout_ms == answered_ms

    run(case)


def test_needed_copies_change_while_the_master_runs() -> None:
    async def case(world: World) -> None:
        store = FakeStore(identity="x")
        master = build(world, store, "SYNC_MASTER", host=MASTER, **PAIR)
        assert master.hides_unconfirmed
        await master.start()
        assert store.replicas.is_required
        config = ReplicationConfig(replication_secret_file="/secret", in_sync_replicas=1)
        master.configure(config)
        await world.until(lambda: not store.replicas.is_required)
        assert not master.hides_unconfirmed
        master.configure(replace(config, min_in_sync_replicas=2))
        await world.until(lambda: master.send_refusal is not None)
        master.configure(replace(config, in_sync_replicas=2))
        await world.until(lambda: store.replicas.is_required)
        assert master.send_refusal is None
        await master.stop()

    run(case)


def test_needed_copies_may_change_before_the_start() -> None:
    async def case(world: World) -> None:
        store = FakeStore(identity="x")
        master = build(world, store, "SYNC_MASTER", host=MASTER, **PAIR)
        master.configure(ReplicationConfig(replication_secret_file="/secret", in_sync_replicas=1))
        store.replicas.is_required = True  # the store holds messages back since it was opened
        await master.start()
        assert not store.replicas.is_required
        await master.stop()

    run(case)
