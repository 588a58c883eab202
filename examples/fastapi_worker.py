"""A FastAPI service that also handles messages, in one process and on one event loop.

    pip install 'rocketpy-mq[fastapi]'
    rocketpy standalone --data ./data
    python examples/fastapi_worker.py --port 8000
    curl -H 'Content-Type: application/json' -d '{"item": "book"}' http://127.0.0.1:8000/orders
    curl http://127.0.0.1:8000/shipped

`async with worker` in the lifespan starts the handlers before the first request, and finishes those
that run after the last one. Requests send with the worker's producer. The handler's result is
published, and the message is done once it is stored.
"""

import argparse
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt

import rocketpy


class Order(BaseModel):
    """Order."""

    item: str
    count: PositiveInt = 1


class Parcel(BaseModel):
    """Shipped order."""

    item: str
    count: int


class Shop:
    """Service and worker.

    Args:
        name_server: address of the cluster.

    Attributes:
        worker: handlers of messages.
        shipped: number of pieces by item.
    """

    def __init__(self, name_server: str) -> None:
        self.worker: rocketpy.App = rocketpy.App(name_server, group="shop")
        self.shipped: Counter[str] = Counter()
        subscribe = self.worker.subscribe("orders", group="shipping", start="earliest")
        self.worker.publisher("parcels")(subscribe(self.ship))

    async def ship(self, order: Order) -> Parcel:
        """Handle a message; what is returned goes to `parcels`."""
        self.shipped[order.item] += order.count
        return Parcel(item=order.item, count=order.count)

    async def send_order(self, order: Order) -> dict[str, str]:
        """Store an order."""
        result = await self.worker.producer.send("orders", order)
        return {"id": result.msg_id}

    async def show_shipped(self) -> dict[str, int]:
        """Return the number of pieces shipped."""
        return dict(self.shipped)

    async def health(self) -> JSONResponse:
        """Return the health of the client and its consumers."""
        found = self.worker.client.health()
        return JSONResponse({"ok": found.ok, "failures": found.failures}, 200 if found.ok else 503)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncGenerator[None]:
        """Run the worker as long as the service."""
        async with self.worker:
            yield

    def service(self) -> FastAPI:
        """Return the service; it connects when it starts."""
        service = FastAPI(title="Shop", lifespan=self.lifespan)
        service.add_api_route("/orders", self.send_order, methods=["POST"], status_code=202)
        service.add_api_route("/shipped", self.show_shipped)
        service.add_api_route("/health", self.health)
        return service


def main() -> None:
    """Read the command line and serve until a signal ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name-server", default="127.0.0.1:9876")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(Shop(options.name_server).service(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
