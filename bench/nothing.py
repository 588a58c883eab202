"""A broker that stores nothing and answers every send at once. The rate of a driver with it is
the driver's own ceiling on this machine, kernel and loop included.

    python -m bench.nothing

Name server and broker in one process on a free port of the loopback address; it prints one ready
line. It knows JSON headers only and keeps no state but how many sends it has answered.
"""

import asyncio
import json
import re
import struct
from typing import Final, cast

import uvloop

_LENGTHS = struct.Struct(">iI")
_CODE = re.compile(rb'"code":(\d+)')
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_SENDS: Final = {b"310", b"320", b"10"}
_ROUTE: Final = b"105"
_ONEWAY = re.compile(rb'"flag":2\b')
_SENT: Final = (
    b'{"code":0,"extFields":{"queueId":"%d","queueOffset":"%d",'
    b'"msgId":"7F00000100002A9F0000000000000000"},"flag":1,"language":"JAVA","opaque":%b,'
    b'"serializeTypeCurrentRPC":"JSON","version":493}'
)
_DONE: Final = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":%b,'
    b'"serializeTypeCurrentRPC":"JSON","version":493}'
)
_QUEUES: Final = 4


def framed(header: bytes, body: bytes = b"") -> bytes:
    """Return a frame with a JSON header."""
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


class Nothing(asyncio.Protocol):
    """Connection of a client."""

    address = ("", 0)
    answered = 0

    def __init__(self) -> None:
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """Answer all complete frames with one write."""
        data = self._unread + data if self._unread else data
        at, end = 0, len(data)
        answers: list[bytes] = []
        while at + 8 <= end:
            size, header_size = _LENGTHS.unpack_from(data, at)
            if at + 4 + size > end:
                break
            # the upper byte of the header's length names its serialization: 0 is JSON
            header = data[at + 8 : at + 8 + (header_size & 0xFFFFFF)]
            at += 4 + size
            answer = self._answer(header)
            if answer is not None:
                answers.append(answer)
        self._unread = data[at:]
        self._transport.write(b"".join(answers))

    def _answer(self, header: bytes) -> bytes | None:
        found, opaque = _CODE.search(header), _OPAQUE.search(header)
        assert found is not None
        assert opaque is not None
        code = found[1]
        if code in _SENDS:
            Nothing.answered = number = Nothing.answered + 1
            return framed(_SENT % (number % _QUEUES, number // _QUEUES, opaque[1]))
        if _ONEWAY.search(header):
            return None
        return framed(_DONE % opaque[1], self._route() if code == _ROUTE else b"")

    def _route(self) -> bytes:
        address = f"{self.address[0]}:{self.address[1]}"
        broker = {"brokerAddrs": {"0": address}, "brokerName": "nothing", "cluster": "nothing"}
        queues = {
            "brokerName": "nothing",
            "perm": 6,
            "readQueueNums": _QUEUES,
            "topicSysFlag": 0,
            "writeQueueNums": _QUEUES,
        }
        return json.dumps(
            {"brokerDatas": [broker], "filterServerTable": {}, "queueDatas": [queues]}
        ).encode()


async def serve() -> None:
    """Listen until ended."""
    server = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", 0)
    Nothing.address = server.sockets[0].getsockname()
    host, port = Nothing.address
    print(json.dumps({"event": "ready", "namesrv": f"{host}:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
