"""Notifies the members of changed consumer groups, a few at a time.

Two hundred connections in a thousand groups can cause two hundred thousand notifications by one
heartbeat each; sent at once, they would block all other requests for seconds. Here a group is
queued once, however often it changes meanwhile, and the loop serves other connections after every
`MAX_NOTICES_A_TURN` notifications.

Source: DefaultConsumerIdsChangeListener.java (5.4.0), which sends all notifications at once.
"""

import collections
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.broker.clients.client_registry import ConsumerGroup
from rocketpy.remoting.connection.channel import Channel

MAX_NOTICES_A_TURN: Final = 200


class MemberNotifier:
    """Queue of groups with members to notify; safe from any thread.

    Args:
        tell: sends a notification about a group to a connection; runs on a connection's loop.
    """

    def __init__(self, tell: Callable[[Channel, str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: dict[str, ConsumerGroup] = {}
        self._is_scheduled = False
        # Rest of the current group; used only by the scheduled callback, so it needs no lock.
        self._name = ""
        self._members: collections.deque[Channel] = collections.deque()

    def add(self, group: ConsumerGroup) -> None:
        """Queue a group; its members at the time of the notification are notified."""
        clients = group.clients()
        if not clients:
            return
        with self._lock:
            self._waiting[group.name] = group
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._schedule(clients[0].channel)

    def _schedule(self, channel: Channel) -> None:
        """Continue in the next iteration of a connection's loop, even if it was closed."""
        if channel.call_soon(self._run, channel):
            return
        with self._lock:  # the server has stopped, and all connections are closed
            self._waiting.clear()
            self._members.clear()
            self._is_scheduled = False

    def _run(self, channel: Channel) -> None:
        for _ in range(MAX_NOTICES_A_TURN):
            if self._members:
                self._tell(self._members.popleft(), self._name)
                continue
            with self._lock:
                if not self._waiting:
                    self._is_scheduled = False
                    return
                self._name = next(iter(self._waiting))
                group = self._waiting.pop(self._name)
            self._members.extend(client.channel for client in group.clients())
        self._schedule(channel)
