"""A FastAPI service that sends and answers when the message is stored.

    pip install 'rocketpy-mq[fastapi]'
    rocketpy standalone --data ./data
    python examples/fastapi_service.py --port 8000
    curl -H 'Content-Type: application/json' -d '{"item": "book"}' http://127.0.0.1:8000/orders

One client and one producer for the life of the application: `lifespan` connects before the first
request and closes after the last one. A body is a pydantic model, checked by FastAPI on its way in
and by the consumer on its way out. 202 says that a broker has the message; 503 with Retry-After
that the same request may succeed later; 400 that it never will.
"""

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import rocketpy
from rocketpy.errors import FlowControlError, RocketPyError

TOPIC = "orders"


class Order(BaseModel):
    """Order."""

    item: str
    count: int = 1


class Stored(BaseModel):
    """The id under which a message is found again."""

    id: str


def producer_of(request: Request) -> rocketpy.Producer:
    """Return the application's producer."""
    producer = request.state.producer
    assert isinstance(producer, rocketpy.Producer)
    return producer


AppProducer = Annotated[rocketpy.Producer, Depends(producer_of)]


async def send_order(order: Order, producer: AppProducer) -> Stored:
    """Store an order."""
    result = await producer.send(TOPIC, order)
    return Stored(id=result.msg_id)


async def health(request: Request) -> JSONResponse:
    """Return the health of the client and its failures."""
    found = request.state.client.health()
    return JSONResponse({"ok": found.ok, "failures": found.failures}, 200 if found.ok else 503)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Return the status of a failed send: whose fault it is, and whether to retry."""
    assert isinstance(error, RocketPyError)
    if not error.retriable:
        return JSONResponse({"error": str(error)}, 400)
    wait_s = error.retry_after if isinstance(error, FlowControlError) else 1
    return JSONResponse({"error": str(error)}, 503, {"Retry-After": f"{wait_s:.0f}"})


def make_app(name_server: str) -> FastAPI:
    """Return the application; it connects when it starts."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, object]]:
        async with rocketpy.connect(name_server, group="shop") as client:
            orders = rocketpy.TypedSerializer(Order)
            yield {"client": client, "producer": client.producer(serializer=orders)}

    app = FastAPI(title="Orders", lifespan=lifespan)
    app.add_api_route("/orders", send_order, methods=["POST"], status_code=202)
    app.add_api_route("/health", health)
    app.add_exception_handler(RocketPyError, refused)
    return app


def main() -> None:
    """Read the command line and serve until a signal ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name-server", default="127.0.0.1:9876")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(make_app(options.name_server), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
