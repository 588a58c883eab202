"""Helpers of send tests: a recorded send, frozen brokers, choice of the first broker."""

from typing import Any

from rocketpy.client.sending.queue_selection import Destination
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import Cluster

SEND = 310


class Sends:
    """Record of one send: its duration and its attempts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.began_ms = cluster.elapsed_ms

    @property
    def took_ms(self) -> int:
        return self.cluster.elapsed_ms - self.began_ms

    @property
    def tried(self) -> list[tuple[int, str]]:
        """Attempts as time in tenths of seconds and broker."""
        return [
            ((at - self.began_ms) // 100, request.ext_fields["n"])
            for at, request in self.cluster.times
            if request.code == SEND and at >= self.began_ms
        ]

    @property
    def tried_brokers(self) -> list[str]:
        return [broker for _, broker in self.tried]


def freeze(cluster: Cluster, *brokers: int) -> None:
    """Nothing that brokers send arrives any more, nor anything that is sent to them."""
    hosts = [cluster.world.brokers[number].host.name for number in brokers]
    everybody = ["10.0.0.1", *(f"10.0.1.{number}" for number in range(1, 9))]
    cluster.world.network.partition(hosts, everybody)


async def warm(producer: Any, cluster: Cluster) -> None:
    """Have the routes and the connections, and forget the requests."""
    for _ in range(8):
        await producer.send("t", b"warm")
    cluster.times.clear()
    cluster.requests.clear()


def first_on(producer: Any, broker: str) -> None:
    """Have the next send begin with a broker."""
    route = producer._started.route("t")
    queues = route.queues
    while queues[(route._turn + 1) % len(queues)].broker_name != broker:
        route._turn += 1


def stored_with(status: int) -> Any:
    """Return a step that answers a send as stored with a status."""

    def step(_: str, request: RemotingCommand) -> RemotingCommand:
        fields = {"msgId": "0" * 32, "queueId": request.ext_fields["e"], "queueOffset": "7"}
        return make_response(request, status, ext_fields=fields)

    return step


def destination(queue: MessageQueue) -> Destination:
    """Return a destination for tests that send nothing."""
    return Destination(queue, "b:10911", {}, {})
