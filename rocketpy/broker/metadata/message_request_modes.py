"""Message request modes (pull or pop) of groups, set by tools: messageRequestMode.json.

Members get the mode in the response to QUERY_ASSIGNMENT (400).

Source: MessageRequestModeManager.java (5.4.0).
"""

import threading
from typing import Final

from rocketpy.broker.metadata.json_document import JsonDocument, as_table
from rocketpy.proto.bodies.group import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

MAX_MODES: Final = 10_000
"""Bound on the pairs of topic and group, which tools choose; Apache has no bound."""


class MessageRequestModes:
    """Modes by topic and group; safe from any thread.

    Args:
        file: messageRequestMode.json.
        max_modes: maximal number of pairs of topic and group.
    """

    def __init__(self, file: JsonDocument, max_modes: int = MAX_MODES) -> None:
        self._file = file
        self._max_modes = max_modes
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        """Read messageRequestMode.json."""
        value = as_table(self._file.load())
        with self._lock:
            self._table = MessageRequestModeSerializeWrapper.from_json(
                value
            ).message_request_mode_map

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """Return the mode of a topic and a group; None when it was not set."""
        return self._table.get(topic, {}).get(group)

    def put(self, mode: SetMessageRequestModeRequestBody) -> bool:
        """Set the mode of a topic and a group, and write the file; False when the table is full."""
        with self._lock:
            before = self._table.get(mode.topic, {}).get(mode.consumer_group)
            if before is None and sum(map(len, self._table.values())) >= self._max_modes:
                return False
            self._table.setdefault(mode.topic, {})[mode.consumer_group] = mode
            if before != mode:
                self._file.save(self.snapshot().to_json())
        return True

    def follow(self, wanted: MessageRequestModeSerializeWrapper) -> None:
        """Take the modes of the master, at a slave, and write the file if they differ.

        Raises:
            StoreError: the file cannot be written; the table is unchanged.
        """
        with self._lock:
            if wanted.message_request_mode_map != self._table:
                self._file.save(wanted.to_json())
                self._table = wanted.message_request_mode_map

    def remove_topic(self, topic: str) -> None:
        """Drop a deleted topic; the file is updated with the next change."""
        with self._lock:
            self._table.pop(topic, None)

    def snapshot(self) -> MessageRequestModeSerializeWrapper:
        """Return a copy of the table."""
        return MessageRequestModeSerializeWrapper(
            message_request_mode_map={topic: dict(groups) for topic, groups in self._table.items()}
        )
