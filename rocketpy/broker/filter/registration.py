"""One group's SQL92 filter of one topic, and its form in consumerFilter.json.

Source: ConsumerFilterData.java (5.4.0).
"""

from dataclasses import field
from typing import Any, Self

from rocketpy.broker.document import as_int, as_table
from rocketpy.broker.filters import SqlFilter
from rocketpy.errors import ExpressionError
from rocketpy.lazy_dataclass import lazy_dataclass
from rocketpy.sql92.bloom import BloomFilterData
from rocketpy.sql92.condition import Condition


@lazy_dataclass()
class Registration:
    """A filter that a group subscribed with.

    Attributes:
        topic: what of.
        group: whose.
        condition: the filter.
        bloom: the group's bits in a filter over all groups of the topic.
        client_version: of the subscription, as the client counts; the greatest one counts.
        born_ms: wall time of the subscription.
        dead_ms: wall time when the group lost its last member or the topic; 0 while it lives.
        filter: what its pulls take.
    """

    topic: str
    group: str
    condition: Condition
    bloom: BloomFilterData
    client_version: int
    born_ms: int
    dead_ms: int = 0
    filter: SqlFilter = field(init=False)

    def __post_init__(self) -> None:
        self.filter = SqlFilter(self.condition)

    @property
    def is_dead(self) -> bool:
        """Whether nobody uses it now."""
        return self.dead_ms >= self.born_ms

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self.filter.size_bytes + len(self.topic) + len(self.group)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "bloomFilterData": {
                "bitNum": self.bloom.bit_count,
                "bitPos": list(self.bloom.positions),
            },
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.condition.expression,
            "expressionType": "SQL92",
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: object, now_ms: int) -> Self | None:
        """Read one entry of the file.

        Whoever lived when the file was written counts as dead since half a minute.

        Args:
            value: the entry.
            now_ms: wall time.

        Returns:
            None when it is no SQL92 filter that can be used.
        """
        table = as_table(value)
        bloom = as_table(table.get("bloomFilterData"))
        positions = bloom.get("bitPos")
        texts = [table.get(name) for name in ("topic", "consumerGroup", "expression")]
        if not isinstance(positions, list) or table.get("expressionType") != "SQL92":
            return None
        if not all(isinstance(text, str) and text for text in texts):
            return None
        topic, group, expression = map(str, texts)
        try:
            condition = Condition(expression)
        except ExpressionError:
            return None
        born_ms = as_int(table.get("bornTime"), 0)
        dead_ms = as_int(table.get("deadTime"), 0)
        return cls(
            topic,
            group,
            condition,
            BloomFilterData(
                as_int(bloom.get("bitNum"), 0), tuple(as_int(one, 0) for one in positions)
            ),
            as_int(table.get("clientVersion"), 0),
            born_ms,
            dead_ms or max(born_ms, now_ms - _DEAD_SINCE_MS),
        )


_DEAD_SINCE_MS = 30_000
