"""A worker: handlers by decorator, their parameters by annotation.

    rocketpy standalone --data ./data
    rocketpy run examples.worker:app --workers 2        # or: python examples/worker.py [NAMESRV]

Paid orders become bills; what cannot be billed is a dead letter (the topic %DLQ%billing). See what
comes out with: rocketpy consume bills --from earliest
"""

import argparse
from dataclasses import dataclass

import rocketpy

app = rocketpy.App()
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bill paid orders.")
    parser.add_argument("namesrv", nargs="?", help="name servers, host:port;host:port")
    app = rocketpy.App(parser.parse_args().namesrv)


@dataclass
class Order:
    """Order of the shop."""

    id: str
    amount: int


@app.subscribe("orders", group="billing", filter="paid", start="earliest")
async def bill(order: Order, producer: rocketpy.Producer) -> None:
    """Send a bill for a paid order."""
    if order.amount <= 0:
        raise rocketpy.ToDLQ(f"nothing to bill in {order.id}")
    await producer.send("bills", {"order": order.id, "amount": order.amount}, keys=[order.id])


if __name__ == "__main__":
    app.run()
