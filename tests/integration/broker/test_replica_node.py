"""Replicas in this process, with a real controller: attempts to start that fail."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.failover.node_settings import NodeSettings
from rocketpy.broker.failover.node_state import NodeRole
from rocketpy.broker.failover.replica_node import ReplicaNode
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.errors import ConfigError, StoreLockedError
from rocketpy.proto.replication.epochs import Epoch
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from tests.ports import free_port

LOOPBACK = RemotingServerConfig(bind_address="127.0.0.1")


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


@asynccontextmanager
async def controller(directory: Path) -> AsyncIterator[Controller]:
    config = ControllerConfig(
        controller_store_path=str(directory / "controller"),
        controller_listen_port=0,
        server=LOOPBACK,
    )
    made = Controller(config, clock=SystemClock())
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def node(directory: Path, controller_address: str, port: int) -> ReplicaNode:
    secret = directory / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    return ReplicaNode(
        NodeSettings(
            broker=BrokerConfig(
                broker_name="a",
                broker_ip1="127.0.0.1",
                bind_address="127.0.0.1",
                listen_port=port,
            ),
            store=MessageStoreConfig(
                store_path_root_dir=str(directory / "store"),
                mapped_file_size_commit_log=1 << 20,
            ),
            failover=FailoverConfig(
                enable_controller_mode=True, controller_addr=controller_address
            ),
            replication=ReplicationSettings(
                config=ReplicationConfig(replication_secret_file=str(secret))
            ),
            server=LOOPBACK,
        )
    )


def test_name_that_the_identity_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    settings = node(tmp_path, "127.0.0.1:1", 1)._settings
    for key, broker in {
        "brokerName": replace(settings.broker, broker_name="a#b"),
        "brokerClusterName": replace(settings.broker, broker_cluster_name="a#b"),
    }.items():
        with pytest.raises(ConfigError, match=key):
            ReplicaNode(replace(settings, broker=broker))


async def test_master_whose_port_was_taken_starts_when_it_is_free(tmp_path: Path) -> None:
    port = free_port()
    async with controller(tmp_path) as made, contextlib.AsyncExitStack() as stack:
        replica = node(tmp_path, made.address, port)
        with socket.create_server(("127.0.0.1", port)):
            await replica.start()
            stack.push_async_callback(replica.stop)
            # The epoch is on disk before the broker listens.
            await until(lambda: bool(replica.epochs), "elected")
            assert replica.role is NodeRole.WAITING
            assert [each.code for each in replica.not_ready()] == ["waiting_for_master"]
        await until(lambda: replica.role is NodeRole.MASTER, "master")
        assert replica.epochs == (Epoch(1, 0),)
        assert replica.broker_id == 1


async def test_replica_that_starts_again_keeps_its_id_and_gets_another_epoch(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with controller(tmp_path) as made:
        for epoch in (1, 2):
            replica = node(tmp_path, made.address, port)
            await replica.start()
            try:
                await until(lambda: replica.role is NodeRole.MASTER, "master")  # noqa: B023
                assert (replica.broker_id, replica.master.epoch) == (1, epoch)
            finally:
                await replica.stop()


async def test_second_process_of_a_directory_is_refused_before_it_registers(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with controller(tmp_path) as made:
        first, second = (node(tmp_path, made.address, port) for _ in range(2))
        await first.start()
        try:
            await until(lambda: first.role is NodeRole.MASTER, "master")
            with pytest.raises(StoreLockedError):
                await second.start()
            await second.stop()
            await asyncio.sleep(0.2)
            assert (first.role, first.master.epoch) == (NodeRole.MASTER, 1)
        finally:
            await first.stop()


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.05, 0.1, 0.2])
async def test_replica_that_is_stopped_at_any_moment_leaves_its_directory_and_port(
    tmp_path: Path, wait_s: float
) -> None:
    port = free_port()
    async with controller(tmp_path) as made:
        replica = node(tmp_path, made.address, port)
        await replica.start()
        await asyncio.sleep(wait_s)
        await replica.stop()
        assert replica.broker is None
        again = node(tmp_path, made.address, port)
        await again.start()
        try:
            await until(lambda: again.role is NodeRole.MASTER, "master")
        finally:
            await again.stop()
