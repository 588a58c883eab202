"""An HTTP service that sends: one client for the life of the service, answers when it is stored.

    rocketpy standalone --data ./data
    python examples/http_service.py --port 8000
    curl -d '{"item": "book"}' http://127.0.0.1:8000/orders

It shows what matters in any framework: connect when the service starts (FastAPI's `lifespan`),
keep the producer, answer 202 when a broker has the message, 400 for what no retry helps, 503 with
Retry-After for what one does, and close after the last request. The server is asyncio's own, so
that nothing else is needed: one request a connection, bodies up to 64 KiB.
"""

import argparse
import asyncio
import json
import signal

import rocketpy
from rocketpy.errors import FlowControlError, RocketPyError

TOPIC, LIMIT_BYTES = "orders", 64 * 1024
REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 503: "Unavailable"}


class Service:
    """Answers requests.

    Args:
        client: started; closed by its creator.
    """

    def __init__(self, client: rocketpy.Client) -> None:
        self._client = client
        self._producer = client.producer(serializer=rocketpy.json)

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, object]]:
        """Return status and JSON for a request."""
        if (method, path) == ("GET", "/health"):
            health = self._client.health()
            return (200 if health.ok else 503), {"ok": health.ok, "failures": health.failures}
        if (method, path) != ("POST", "/orders"):
            return 404, {"error": "POST /orders, or GET /health"}
        try:
            order = json.loads(body)
        except ValueError as error:
            return 400, {"error": f"no JSON: {error}"}
        try:
            result = await self._producer.send(TOPIC, order)
        except RocketPyError as error:
            wait_s = error.retry_after if isinstance(error, FlowControlError) else 1
            return (503 if error.retriable else 400), {"error": str(error), "retry_after": wait_s}
        return 202, {"id": result.msg_id}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and write its answer."""
        try:
            method, path, _ = (await reader.readline()).decode("latin-1").split()
            length = 0
            while (line := await reader.readline()).strip():
                name, _, value = line.decode("latin-1").partition(":")
                if name.lower() == "content-length":
                    length = min(int(value), LIMIT_BYTES)
            status, answer = await self.answer(method, path, await reader.readexactly(length))
        except (ValueError, asyncio.IncompleteReadError):
            status, answer = 400, {"error": "no HTTP request"}
        text = json.dumps(answer).encode()
        head = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {len(text)}"]
        head += ["Content-Type: application/json", "Connection: close"]
        if status == 503:
            head.append(f"Retry-After: {answer.get('retry_after', 1)}")
        writer.write("\r\n".join([*head, "", ""]).encode() + text)
        await writer.drain()
        writer.close()


async def run(name_server: str, port: int) -> None:
    """Serve until a signal; requests in progress are answered."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with rocketpy.connect(name_server, group="shop") as client:
        server = await asyncio.start_server(Service(client).serve, "127.0.0.1", port)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await stop.wait()
        server.close()
        await server.wait_closed()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name-server", default="127.0.0.1:9876")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    options = parser.parse_args()
    asyncio.run(run(options.name_server, options.port))


if __name__ == "__main__":
    try:
        main()
    except RocketPyError as error:  # such as name servers that do not answer
        raise SystemExit(f"error: {error}") from None
