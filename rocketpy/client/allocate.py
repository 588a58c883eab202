"""Who in a group reads which queue: the rule a consumer was given, by name or as a function.

The rules themselves are `rocketpy.proto.allocation`'s: brokers that balance use them too.
"""

from typing import Final, Literal

from rocketpy.proto.allocation import (
    Allocation,
    allocate_average,
    allocate_circle,
    consistent_hash,
)

AllocationName = Literal["avg", "circle", "consistent_hash"]

_RULES: Final[dict[str, Allocation]] = {
    "avg": allocate_average,
    "circle": allocate_circle,
    "consistent_hash": consistent_hash(),
}


def find_allocation(chosen: AllocationName | Allocation) -> Allocation:
    """Return the rule of that name, or the function itself."""
    return chosen if callable(chosen) else _RULES[chosen]
