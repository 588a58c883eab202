"""Cache of half and delayed messages as transformed for the store, without parsing again.

The result of the put transforms depends on the properties, topic, queue and transaction bits of a
message. It is cached for property bytes that differ only in their UNIQ_KEY.

Messages with results that depend on more are not cached: timed messages (on the time), and retries
(on their group).
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from rocketpy.broker.operation.send.put_transforms import PutTransform
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.property_templates import (
    HOLE,
    SPECIAL_PROPERTIES,
    PropertyTemplate,
    PropertyTemplates,
    summary_of,
)
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TRANSACTION_PREPARED,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import TRANSACTION_MASK
from rocketpy.store.results import PutMessage

_REMEMBERED: Final = frozenset({PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TRANSACTION_PREPARED})
_NOT_REMEMBERED: Final = SPECIAL_PROPERTIES - _REMEMBERED
_HOLE: Final = HOLE.encode()


class _Rewrite(NamedTuple):
    """Result of the transforms for messages that differ only in UNIQ_KEY and body."""

    topic: str
    queue_id: int
    transaction_bits: int
    delay_level: int
    waits: bool
    template: PropertyTemplate


class RewriteCache:
    """Cached results of put transforms; safe from any thread.

    Args:
        transforms: see `rocketpy.broker.operation.send.put_transforms`.
        complete: adds the broker's properties; called with the sender's properties and UNIQ_KEY.
    """

    def __init__(
        self,
        transforms: Sequence[PutTransform],
        complete: Callable[[dict[str, str], str], dict[str, str]],
    ) -> None:
        self._transforms = tuple(transforms)
        self._complete = complete
        self._templates: PropertyTemplates[_Rewrite | None] = PropertyTemplates(self._make)
        self.clear: Callable[[], None] = self._templates.clear

    def message(self, request: SendRequest, topic_flag: int) -> PutMessage | None:
        """Return the message to store; None when it must pass the transforms.

        Args:
            request: a send to an ordinary topic.
            topic_flag: system flag of the topic.
        """
        sys_flag = request.sys_flag | topic_flag
        bits = sys_flag & TRANSACTION_MASK
        found = self._templates.find(request.properties, (request.topic, request.queue_id, bits))
        if found is None or found[1] is None:
            return None
        uniq_key, rewrite = found[0], found[1]
        template = rewrite.template
        stored, key = template.fill(uniq_key)
        return PutMessage(
            rewrite.topic,
            rewrite.queue_id,
            request.body,
            stored,
            request.born_host,
            request.flag,
            # The transaction bits of the request are replaced by those of the transformed message.
            sys_flag ^ bits | rewrite.transaction_bits,
            request.born_timestamp_ms,
            template.tags_code,
            key,
            template.keys,
            template.tags,
            wait_store_ok=rewrite.waits,
            delay_level=rewrite.delay_level,
        )

    def _make(self, properties: dict[str, str], place: Hashable) -> _Rewrite | None:
        # None is cached as well: the next message with these properties skips the attempt.
        if not _NOT_REMEMBERED.isdisjoint(properties) or _REMEMBERED.isdisjoint(properties):
            return None
        assert isinstance(place, tuple)
        topic, queue_id, bits = place
        summary = summary_of(properties)
        # A unique placeholder instead of the UNIQ_KEY marks where each message's key goes.
        full = self._complete(properties, HOLE)
        message = PutMessage(
            topic,
            queue_id,
            b"",
            encode_properties(full),
            sys_flag=bits,
            tags_code=summary.tags_code,
            uniq_key=HOLE,
            keys=properties.get(PROPERTY_KEYS),
            tags=summary.tags,
        )
        request = SendRequest(topic, queue_id, b"", message.properties, b"", "", 0, bits, 0)
        if any(transform(message, full, request) is not None for transform in self._transforms):
            return None  # the general path returns the refusal to the sender
        stored = message.properties
        holes = sum(value == HOLE for value in parse_properties(stored).values())
        # The placeholder must occur only as a complete value; a client may have sent it as a part
        # of another one.
        if stored.count(_HOLE) != holes:
            return None
        template = PropertyTemplate(
            tuple(stored.split(_HOLE)), HOLE, message.keys, message.tags, message.tags_code
        )
        return _Rewrite(
            message.topic,
            message.queue_id,
            message.sys_flag,
            message.delay_level,
            summary.waits,
            template,
        )
