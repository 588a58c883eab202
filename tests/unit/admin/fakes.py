"""A cluster that exists only as answers, and remembers what it was asked."""

from collections.abc import Callable
from typing import Any

from rocketpy.errors import ConnectError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketpy.proto.bodies.stats import ConsumeStats, OffsetWrapper
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.calls import RpcHook

Response = Callable[[RemotingCommand], RemotingCommand]

NAMESRVS = ("ns1:9876", "ns2:9876")
BROKERS = {"broker-a": "10.0.0.1:10911", "broker-b": "10.0.0.2:10911"}
QA, QB = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)


class FakeRemoting:
    """Answers by request code; what has no response is refused with code 3."""

    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.hooks: list[RpcHook] = []
        self.down: set[str] = set()
        self.closed = False
        self._responses: dict[tuple[str, int], Response] = {}
        self.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=cluster().encode())
        self.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route().encode())

    def response(
        self,
        code: int,
        result: int = 0,
        *,
        at: str = "",
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Give this response to every request of a code (at one server)."""
        self._responses[at, code] = lambda request: make_response(
            request, result, remark, dict(ext or {}), body
        )

    def response_with(self, code: int, response: Response, *, at: str = "") -> None:
        self._responses[at, code] = response

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms > 0
        assert not self.closed
        self.asked.append((address, command))
        if address in self.down:
            raise ConnectError(f"cannot connect to {address}")
        found = self._responses.get((address, command.code)) or self._responses.get(
            ("", command.code)
        )
        if found is None:
            return make_response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no answer set")
        return found(command)

    def invoke_future(self, address: str, command: RemotingCommand, timeout_ms: int) -> Any:
        raise AssertionError("the admin does not use it")

    def start(self, address: str, call: Any) -> None:
        raise AssertionError("the admin does not use it")

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        raise AssertionError("the admin does not use it")

    def register(self, code: int, processor: Any) -> None:
        raise AssertionError("the admin does not use it")

    async def close(self) -> None:
        self.closed = True

    def requests(self, code: int) -> list[tuple[str, RemotingCommand]]:
        return [(address, command) for address, command in self.asked if command.code == code]

    def addresses(self, code: int) -> list[str]:
        return [address for address, _ in self.requests(code)]


def cluster() -> ClusterInfo:
    table = {
        name: BrokerData(cluster="c1" if name == "broker-a" else "c2", broker_name=name,
                         broker_addrs={0: address, 1: address.replace("10911", "10921")})
        for name, address in BROKERS.items()
    }  # fmt: skip
    names = {"c1": {"broker-a"}, "c2": {"broker-b"}}
    return ClusterInfo(broker_addr_table=table, cluster_addr_table=names)


def route(queues: int = 2) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for name in BROKERS
        ],
        broker_datas=list(cluster().broker_addr_table.values()),
    )


def give_groups(remoting: FakeRemoting, *names: str, at: str = "") -> None:
    table = {name: SubscriptionGroupConfig(group_name=name, retry_max_times=3) for name in names}
    body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
    remoting.response(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, at=at, body=body)


def give_progress(remoting: FakeRemoting) -> None:
    """Let the group have three messages left in a queue of each broker."""
    for queue in (QA, QB):
        done = OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=5)
        body = ConsumeStats(offset_table={queue: done}, consume_tps=1.5).encode()
        remoting.response(RequestCode.GET_CONSUME_STATS, at=BROKERS[queue.broker_name], body=body)
