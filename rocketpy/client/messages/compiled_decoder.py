"""Loader of the compiled decoder of pulled messages.

`_messages.pyx` decodes a pull whose records are all fast-path eligible, and reads of each only the
fields that delivery needs. `record.message` is the reference: it decodes every other pull, and all
of them in pure Python (docs/decisions/0011-a-compiled-decoder-for-received-messages.md).
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from rocketpy.client.messages.message import ReceivedMessage, Settlement
from rocketpy.client.messages.serializers import Serializer
from rocketpy.compiled_module import load_compiled
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.topic_names import RETRY_PREFIX

_MODULE: Final = "rocketpy.client.messages._messages"
_MOST_TOPIC_BYTES: Final = 255

_Shared: TypeAlias = tuple[tuple[str, object], ...]
MakeMessages: TypeAlias = Callable[
    [bytes, bytes, type[ReceivedMessage], _Shared], list[ReceivedMessage] | None
]
PlainMessages: TypeAlias = Callable[[bytes], list[ReceivedMessage] | None]


def compiled_messages() -> MakeMessages | None:
    """Return the compiled decoder; None when it is not built, or disabled.

    Raises:
        ImportError: it is not built and ROCKETPY_COMPILED=1 requires it.
    """
    module = load_compiled(_MODULE)
    if module is None:
        return None
    make: MakeMessages = module.messages
    return make


def decode_compiled(
    queue: MessageQueue,
    *,
    serializer: Serializer | None,
    settlement: Settlement,
    namespace: str,
) -> PlainMessages | None:
    """Return the compiled decoder of the pulls of a queue.

    Args:
        queue: source of the messages.
        serializer: as for `ReceivedMessage`.
        settlement: as for `ReceivedMessage`.
        namespace: as for `ReceivedMessage`.

    Returns:
        A function that returns None for a pull that is not fast-path eligible. None instead of it
        when no pull is: without the compiled module, and for a retry topic, whose messages have
        different original topics.
    """
    make = compiled_messages()
    topic = queue.topic.encode()
    if make is None or queue.topic.startswith(RETRY_PREFIX) or len(topic) > _MOST_TOPIC_BYTES:
        return None
    shown = unwrap_namespace(namespace, queue.topic) if namespace else queue.topic
    shared = (
        ("queue", queue),
        ("topic", shown),
        ("_namespace", namespace),
        ("_serializer", serializer),
        ("_settlement", settlement),
    )

    def plain(records: bytes) -> list[ReceivedMessage] | None:
        return make(records, topic, ReceivedMessage, shared)

    return plain
