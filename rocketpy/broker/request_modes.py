"""How a group gets the messages of a topic, as tools set it: messageRequestMode.json.

Only PULL is served. An entry of another mode, from a file that Apache wrote, is kept and answered
to those who list the table; assignments of it are PULL.

Source: MessageRequestModeManager.java (5.4.0).
"""

import threading

from rocketpy.broker.document import JsonDocument, as_table
from rocketpy.proto.bodies.group import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)


class MessageRequestModes:
    """Modes by topic and group; safe from any thread."""

    def __init__(self, file: JsonDocument) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        """Read messageRequestMode.json."""
        value = as_table(self._file.load())
        with self._lock:
            self._table = MessageRequestModeSerializeWrapper.from_json(
                value
            ).message_request_mode_map

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set the mode of a topic and a group, and write the file."""
        with self._lock:
            groups = self._table.setdefault(mode.topic, {})
            before = groups.get(mode.consumer_group)
            groups[mode.consumer_group] = mode
            if before != mode:
                self._file.save(self.snapshot().to_json())

    def snapshot(self) -> MessageRequestModeSerializeWrapper:
        """Return the whole table."""
        return MessageRequestModeSerializeWrapper(
            message_request_mode_map={topic: dict(groups) for topic, groups in self._table.items()}
        )
