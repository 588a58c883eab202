"""Who in a group reads which queue: the rule a consumer was given, by name or as a function.

The rules themselves are `rocketpy.proto.allocation`'s: brokers that balance use them too.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from rocketpy.proto.allocation import (
    allocate_average,
    allocate_circle,
)
from rocketpy.proto.message_queue import MessageQueue

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def find_allocation(chosen: Literal["avg", "circle"] | Allocation) -> Allocation:
    """Return the rule of that name, or the function itself."""
    if callable(chosen):
        return chosen
    return allocate_circle if chosen == "circle" else allocate_average
