"""The broker that stores nothing answers as a driver expects, on the loop that it runs on."""

import asyncio
import json

import uvloop

from bench.nothing import Nothing, framed


async def _asked(*headers: bytes) -> list[dict[str, object]]:
    """Headers of the answers to these, all asked in one write."""
    server = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"".join(framed(header) for header in headers))
        answers = []
        for _ in headers:
            size = int.from_bytes(await reader.readexactly(4))
            frame = await reader.readexactly(size)
            answers.append(json.loads(frame[4 : 4 + int.from_bytes(frame[1:4])]))
        writer.close()
        await writer.wait_closed()
    return answers


def test_sends_and_routes_are_answered_under_uvloop() -> None:
    route, first, second = uvloop.run(
        _asked(
            b'{"code":105,"flag":0,"opaque":7}',
            b'{"code":310,"flag":0,"opaque":8}',
            b'{"code":320,"flag":0,"opaque":9}',
        )
    )
    assert (route["code"], route["opaque"]) == (0, 7)
    assert [first["opaque"], second["opaque"]] == [8, 9]
    places = [answer["extFields"] for answer in (first, second)]
    assert places[0] != places[1]
