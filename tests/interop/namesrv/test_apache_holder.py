"""A broker of Apache at our name server, and a second broker of its name."""

import signal
import time
from pathlib import Path

import pytest

from rocketpy.namesrv.holder_check import ANSWER_TIMEOUT_MS
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import TopicConfigSerializeWrapper
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.integration.client.daemons import Daemon
from tests.peer.apache import Apache, require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(600)]

NAME, SECOND = "apache-a", "10.9.9.9:10911"


def register(second: Wire) -> None:
    fields = {
        "brokerName": NAME,
        "brokerAddr": SECOND,
        "clusterName": "DefaultCluster",
        "haServerAddr": "10.9.9.9:10912",
        "brokerId": "0",
        "bodyCrc32": "0",
        "compressed": "false",
    }
    body = RegisterBrokerBody(TopicConfigSerializeWrapper()).encode()
    assert second.call(RequestCode.REGISTER_BROKER, fields, body).code == 0


def test_broker_of_apache_keeps_its_routes_while_it_answers(tmp_path: Path) -> None:
    require_peer()
    namesrv = f"127.0.0.1:{free_port()}"
    port = namesrv.partition(":")[2]
    ours = Daemon(
        tmp_path / "namesrv.log", "namesrv", "-p", port, "-D", "bindAddress=127.0.0.1",
        "-D", f"dataDir={tmp_path}/namesrv",
    )  # fmt: skip
    apache = Apache(tmp_path / "apache", other_namesrv=namesrv)
    ours.start()
    try:
        with apache.borrowed(), Wire(namesrv) as second, Wire(namesrv) as asker:

            def is_routed_to(address: str) -> bool:
                found = asker.call(RequestCode.GET_BROKER_CLUSTER_INFO).body
                return f'"brokerAddrs":{{"0":"{address}"}}'.encode() in found

            for _ in range(4):
                register(second)
                time.sleep(ANSWER_TIMEOUT_MS / 2_000)
                assert is_routed_to(apache.address)
            apache.signal(signal.SIGSTOP)
            register(second)
            deadline = time.monotonic() + 60
            while not is_routed_to(SECOND):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        ours.end()
