"""Start and stop of a broker without a network; failures in between leave nothing open."""

import asyncio
import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import DiskFullError, StartError, StoreError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.network.acceptor import Acceptor
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.store.timer.wheel import WHEEL_BYTES
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles


class Port:
    """An open port of `NoNetwork`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_open = True

    def stop_accepting(self) -> None:
        self.is_open = False

    async def drain(self, grace_ms: int) -> None:
        assert not self.is_open


class NoNetwork:
    """Fake network that opens ports; those of `taken` are in use."""

    def __init__(self, *taken: int) -> None:
        self.taken = taken
        self.ports: list[Port] = []

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> Port:
        if endpoint.port in self.taken:
            raise StartError(f"port {endpoint.port} is taken")
        self.ports.append(Port(endpoint.port))
        return self.ports[-1]

    async def connect(self, *args: object) -> None:
        raise OSError("connection refused")


class Kit:
    def __init__(self, *taken: int, fast_listen_enable: bool = False) -> None:
        self.clock = SimClock()
        self.files = SimFiles(self.clock)
        self.network = NoNetwork(*taken)
        self.fast = fast_listen_enable

    def broker(self, directory: str = "/store", files: StoreFiles | None = None) -> Broker:
        return Broker(
            BrokerConfig(
                broker_name="b",
                broker_ip1="127.0.0.1",
                listen_port=10911,
                fast_listen_enable=self.fast,
            ),
            store_config=MessageStoreConfig(
                store_path_root_dir=directory,
                mapped_file_size_commit_log=1 << 16,
                mapped_file_size_consume_queue=2000,
                message_index_enable=False,
            ),
            clock=self.clock,
            rng=random.Random(1),
            files=files or self.files,
            network=self.network,  # type: ignore[arg-type]
            threads=False,
        )


async def test_broker_restarts_in_same_process() -> None:
    kit = Kit(fast_listen_enable=True)
    for _ in range(2):
        broker = kit.broker()
        await broker.start()
        assert (broker.port, broker.address) == (10911, "127.0.0.1:10911")
        assert [port.port for port in kit.network.ports] == [10911, 10909]
        await broker.stop()
        assert not any(port.is_open for port in kit.network.ports)
        kit.network.ports.clear()


@pytest.mark.parametrize("taken", [10911, 10909])
async def test_broker_start_on_used_port_closes_store(taken: int) -> None:
    kit = Kit(taken, fast_listen_enable=True)
    with pytest.raises(StartError):
        await kit.broker().start()
    assert not any(port.is_open for port in kit.network.ports)
    kit.network.taken = ()
    broker = kit.broker()
    await broker.start()  # the store's lock is free
    await broker.stop()


def _open_below(directory: Path) -> list[str]:
    opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    return [path for path in opened if path.startswith(str(directory))]


async def test_broker_failed_start_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").touch()
    os.truncate(tmp_path / "timerwheel", WHEEL_BYTES)
    kit = Kit(10911)
    with pytest.raises(StartError):
        await kit.broker(str(tmp_path), RealFiles()).start()
    assert _open_below(tmp_path) == []


async def test_broker_failed_table_write_still_closes_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    broker = kit.broker()
    await broker.start()
    broker.parts.topics.put(TopicConfig("T", 1, 1))
    write_bytes = SimFiles.write_bytes

    def write(files: SimFiles, path: Path, data: bytes) -> None:
        if path.name.startswith("topics.json"):
            raise DiskFullError("no space")
        write_bytes(files, path, data)

    monkeypatch.setattr(SimFiles, "write_bytes", write)
    with structlog.testing.capture_logs() as logged:
        await broker.stop()
    assert [one["table"] for one in logged if one["event"] == "table not written"] == ["topics"]
    monkeypatch.undo()
    again = kit.broker()
    await again.start()
    assert again.parts.topics.get("T") is not None
    await again.stop()


@pytest.mark.parametrize("how", ["file removed", "zeros"])
async def test_broker_with_a_shorter_log_lowers_offsets_after_a_clean_stop(how: str) -> None:
    kit = Kit()
    broker = kit.broker()
    await broker.start()
    broker.parts.topics.put(TopicConfig("T", 1, 1))
    for _ in range(150):
        stored = broker.parts.store.put_message(PutMessage("T", 0, bytes(1_000)))
        assert stored.status is PutMessageStatus.PUT_OK
    broker.parts.offsets.commit("g", "T", 0, 150)
    await broker.stop()
    log = Path("/store/commitlog")
    last = log / kit.files.list_files(log)[-1]
    size_bytes = kit.files.size_bytes(last)
    kit.files.remove(last)
    if how == "zeros":
        kit.files.write_bytes(last, bytes(size_bytes))
    kit.files.remove(Path("/store/checkpoint"))

    again = kit.broker()
    await again.start()
    end = again.parts.store.max_offset("T", 0)
    assert 0 < end < 150
    assert again.parts.offsets.query("g", "T", 0) == end
    await again.stop()


async def test_broker_whose_tables_cannot_be_written_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    write_bytes = SimFiles.write_bytes

    def write(files: SimFiles, path: Path, data: bytes) -> None:
        if path.parent.name == "config":
            raise PermissionError(errno.EACCES, "Permission denied")
        write_bytes(files, path, data)

    monkeypatch.setattr(SimFiles, "write_bytes", write)
    with pytest.raises(StoreError, match=r"/store/config cannot be written \(Permission denied\)"):
        await kit.broker().start()
    monkeypatch.undo()
    broker = kit.broker()
    await broker.start()  # the store is not locked any more
    await broker.stop()


async def test_broker_without_its_tables_warns_about_topics_with_messages() -> None:
    kit = Kit()
    broker = kit.broker()
    await broker.start()
    broker.parts.topics.put(TopicConfig("T", 1, 1))
    for topic in ("T", "SCHEDULE_TOPIC_XXXX"):
        stored = broker.parts.store.put_message(PutMessage(topic, 0, b"x"))
        assert stored.status is PutMessageStatus.PUT_OK
    await broker.stop()
    for is_lost in (False, True):
        if is_lost:
            kit.files.remove_tree(Path("/store/config"))
        again = kit.broker()
        with structlog.testing.capture_logs() as logged:
            await again.start()
        await again.stop()
        found = [each for each in logged if each["event"].startswith("topics.json lacks topics")]
        assert [(each["count"], each["topics"]) for each in found] == [(1, "T")] * is_lost


@pytest.mark.parametrize("is_timed", [False, True])
async def test_broker_without_its_tables_delivers_delayed_messages(is_timed: bool) -> None:
    """Consumers read them once the tables are restored."""
    kit = Kit()
    broker = kit.broker()
    await broker.start()
    parts = broker.parts
    parts.topics.put(TopicConfig("T", 1, 1))
    message = PutMessage("T", 0, b"x")
    message.properties = b"TIMER_DELAY_SEC\x015\x02" if is_timed else b"DELAY\x012\x02"
    assert parts.postponement.postpone(message) is None
    assert parts.store.put_message(message).status is PutMessageStatus.PUT_OK
    await broker.stop()
    kit.files.remove_tree(Path("/store/config"))
    again = kit.broker()
    await again.start()
    for _ in range(30):
        kit.clock.advance(500)
        for service in again.services:
            service.step(kit.clock.monotonic_ms())
    assert again.parts.store.max_offset("T", 0) == 1
    await again.stop()


async def test_broker_stop_ends_replication_after_its_tables_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Kit().broker()
    await broker.start()
    order: list[str] = []
    stop_replication = broker.parts.replication.stop

    async def stop() -> None:
        order.append("replication")
        await stop_replication()

    monkeypatch.setattr(broker.parts.replication, "stop", stop)
    # Pop consumption stores its checkpoints as messages when it is written.
    for feature in broker.parts.features:
        for state in feature.states:
            monkeypatch.setattr(state, "persist", lambda: order.append("table"))
    await broker.stop()
    assert order.count("table") > 0
    assert order[-1] == "replication"
    assert order.count("replication") == 1


async def test_broker_services_run_on_its_loop() -> None:
    broker = Kit().broker()
    await broker.start()
    stepped: list[str] = []
    for service in broker.services:
        assert service.name
        assert service.step(0) >= 0
        stepped.append(service.name)
    assert len(set(stepped)) == len(stepped)
    assert {"BrokerStats", "ClientHousekeeping"} <= set(stepped)
    await asyncio.sleep(0)
    await broker.stop()
