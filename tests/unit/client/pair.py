"""A master and its slave, as clients see them, of two simulated brokers with the same messages.

Broker b is shown as the slave of broker a: routes name it as id 1 of broker-a, and it answers pulls
as slaves do. Tests move offsets between the two, and take the master away.
"""

from typing import Any

from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import BROKER_A, BROKER_B, Cluster

PULL, ROUTE, SEARCH = 11, 105, 29
MASTER, SLAVE = BROKER_A, BROKER_B


class Pair:
    """Broker-a with a slave.

    Attributes:
        has_master: whether routes name the master.
        has_slave: whether routes name the slave.
        is_readable: `slaveReadEnable` of the slave.
        suggested_id: suggestion of the master's answers to pulls.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.has_master = True
        self.has_slave = True
        self.is_readable = True
        self.suggested_id = 0
        cluster.always[ROUTE] = self._route
        cluster.always[PULL] = self._pull

    def lose_master(self) -> None:
        """Kill the master; name servers notice at once."""
        self.has_master = False
        self.cluster.down.add(MASTER)

    def bring_master_back(self) -> None:
        self.has_master = True
        self.cluster.down.discard(MASTER)

    def put(self, count: int, *, on_slave: bool = True) -> None:
        """Store messages, also at the slave unless it lags."""
        for _ in range(count):
            offset = self.cluster.put("t", b"x")
            if on_slave:
                assert self.cluster.put("t", b"x", broker="broker-b") == offset

    def pulls(self, address: str) -> list[RemotingCommand]:
        return [
            request
            for at, request in self.cluster.requests
            if at == address and request.code == PULL and request.ext_fields["topic"] == "t"
        ]

    def _route(self, _: str, request: RemotingCommand) -> Any:
        if request.ext_fields["topic"] not in {"t", "u"}:
            return 17
        addresses = {0: MASTER} if self.has_master else {}
        if self.has_slave:
            addresses[1] = SLAVE
        queues = self.cluster.queues
        route = TopicRouteData(
            queue_datas=[QueueData("broker-a", queues, queues, 6, 0)],
            broker_datas=[BrokerData("DefaultCluster", "broker-a", addresses)],
        )
        return make_response(request, body=route.encode())

    def _pull(self, address: str, request: RemotingCommand) -> Any:
        fields = request.ext_fields
        topic, queue_id = fields["topic"], int(fields["queueId"])
        if address == MASTER:
            if not self.suggested_id or topic != "t":
                return None
            name = "broker-a"
        elif not self.is_readable:
            return 2
        else:
            name = "broker-b"
        store = self.cluster.store(name)
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        asked = int(fields["queueOffset"])
        ext = {"suggestWhichBrokerId": "0" if name == "broker-b" else str(self.suggested_id)}
        ext |= {"minOffset": str(low), "maxOffset": str(high)}
        if low <= asked < high:
            body = self.cluster.records(topic, queue_id, asked, 1, name)
            return make_response(
                request, ext_fields={**ext, "nextBeginOffset": str(asked + 1)}, body=body
            )
        if asked == high:
            return None  # the broker holds the pull
        # No correction by a slave (`offsetCheckInSlave`).
        return make_response(request, 20, ext_fields={**ext, "nextBeginOffset": str(asked)})
