"""A worker: handlers by decorator, their parameters by annotation.

    rocketpy standalone --data ./data
    rocketpy run examples.worker:app --workers 2

Paid orders become bills; what cannot be billed is a dead letter (the topic %DLQ%billing). See what
comes out with: rocketpy consume bills --from earliest
"""

import sys
from dataclasses import dataclass

import rocketpy

app = rocketpy.App(sys.argv[1] if __name__ == "__main__" else None)


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
