"""Broker and name server in one, over TCP, with scripted answers.

Honest unless told otherwise: one broker, topic `t` with a queue that is empty.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rocketpy.proto.bodies.heartbeat import GetConsumerListByGroupResponseBody
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_response
from rocketpy.proto.wire.frame import CommandReader

SEND, PULL, QUERY_OFFSET, COMMIT = 310, 11, 14, 15
HEARTBEAT, MEMBERS, ROUTE = 34, 38, 105

Answer = Callable[[RemotingCommand], bytes | None]


def pulled(
    request: RemotingCommand, code: int, following: int | str, body: bytes = b""
) -> RemotingCommand:
    """Return the response to a pull."""
    fields = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9"}
    fields["nextBeginOffset"] = str(following)
    return make_response(request, code, ext_fields=fields, body=body)


class HostileBroker:
    """Serves connections of a client on the loop of the test.

    Attributes:
        address: `host:port`.
        answers: by code, what to answer; None for nothing. Bytes go out as they are.
        asked: how often each code came.
        commits: offsets of topic t that were committed.
        responses: what the client answered to us.
    """

    def __init__(self) -> None:
        self.address = ""
        self.answers: dict[int, Answer] = {}
        self.asked: Counter[int] = Counter()
        self.commits: list[int] = []
        self.responses: list[RemotingCommand] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._client_ids: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostileBroker"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            server.close()
            for writer in self.writers:
                writer.transport.abort()

    def send(self, data: bytes) -> None:
        """Send to every connection of the client."""
        for writer in self.writers:
            writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        commands = CommandReader()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for command in commands.feed(data):
                    if command.is_response:
                        self.responses.append(command)
                        continue
                    self.asked[command.code] += 1
                    answer = self.answers.get(command.code, self.honest)(command)
                    if answer is not None and not command.is_oneway:
                        writer.write(answer)
        self.writers.remove(writer)
        writer.close()

    def honest(self, request: RemotingCommand) -> bytes | None:
        """Return the answer of an honest broker; one that is empty holds pulls."""
        code = request.code
        if code == PULL:
            return None
        response = make_response(request, ext_fields={"msgId": "7F00000100002A9F0000000000000000"})
        response.ext_fields |= {"queueId": "0", "queueOffset": "0", "offset": "0"}
        if code == COMMIT and request.ext_fields["topic"] == "t":
            self.commits.append(int(request.ext_fields["commitOffset"]))
        elif code == HEARTBEAT:
            document = fastjson.loads(request.body)
            assert isinstance(document, dict)
            self._client_ids = [document["clientID"]]
        elif code == MEMBERS:
            response.body = GetConsumerListByGroupResponseBody(self._client_ids).encode()
        elif code == ROUTE:
            response.body = self.route()
        return encode_command(response)

    def route(self, address: str | None = None) -> bytes:
        """Return a route that leads here, or elsewhere."""
        return TopicRouteData(
            queue_datas=[QueueData("b", 1, 1, 6)],
            broker_datas=[BrokerData("c", "b", {0: address or self.address})],
        ).encode()
