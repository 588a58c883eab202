"""Parts of a name server without network or clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.holder_check import HolderCheck
from rocketpy.namesrv.kv_config import KvConfig
from rocketpy.namesrv.notifier import MinBrokerNotifier
from rocketpy.namesrv.processor.brokers import BrokerProcessor
from rocketpy.namesrv.repeated_bodies import RepeatedBodies
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.namesrv.route_types import MinBrokerChange
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.config.live_config import LiveConfig


class VirtualClock:
    """Clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class FakeChannel:
    """Channel with the attributes that processors use."""

    remote_address = "127.0.0.1:5"
    is_open = True


class RecordingHolderCheck(HolderCheck):
    """Check that records the connections to ask."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def begin(self, holder: object) -> None:
        self.asked.append(holder)


class RecordingNotifier(MinBrokerNotifier):
    """Notifier that records the notifications."""

    def __init__(self) -> None:
        self.told: list[MinBrokerChange] = []

    def notify(self, change: MinBrokerChange) -> None:
        self.told.append(change)


@dataclass
class World:
    """Connected parts of a name server."""

    path: Path
    clock: VirtualClock = field(default_factory=VirtualClock)
    channel: Any = field(default_factory=FakeChannel)
    routes: RouteTable = field(default_factory=RouteTable)
    notifier: RecordingNotifier = field(default_factory=RecordingNotifier)
    holders: RecordingHolderCheck = field(default_factory=RecordingHolderCheck)
    settings: LiveConfig[NamesrvConfig] = field(default_factory=lambda: LiveConfig(NamesrvConfig()))

    def __post_init__(self) -> None:
        self.kv = KvConfig(self.path / "kvConfig.json")
        self.repeats = RepeatedBodies()
        self.brokers = BrokerProcessor(
            self.routes,
            self.kv,
            self.settings,
            self.notifier,
            self.clock,
            self.holders,
            repeats=self.repeats,
        )

    def ask(
        self,
        processor: Processor,
        body: bytes = b"",
        **fields: str,
    ) -> RemotingCommand:
        request = make_request(1, fields, body)
        request.version = 493
        response = processor(self.channel, request)
        assert isinstance(response, RemotingCommand)
        return response

    def registration_body(self, *names: str, is_compressed: bool = False) -> bytes:
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={name: TopicConfig(name, 4, 4, 6) for name in names},
            data_version=DataVersion(timestamp=1, counter=len(names)),
        )
        body = RegisterBrokerBody(wrapper)
        return body.encode_compressed() if is_compressed else body.encode()

    def register(self, *topics: str, **fields: str) -> RemotingCommand:
        body = self.registration_body(*(topics or ("t1", "t2")))
        defaults = {
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "c1",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "0",
            "bodyCrc32": "0",
        }
        return self.ask(self.brokers.register, body, **defaults | fields)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """Captured log events."""
    with structlog.testing.capture_logs() as captured:
        yield captured
