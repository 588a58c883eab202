"""Tells the members of consumer groups that something changed, a few at a time.

Two hundred connections in a thousand groups make two hundred thousand notices of one heartbeat:
sent at once, everybody else would wait for seconds. Here a group waits once however often it
changes meanwhile, and the loop serves others after every `MAX_NOTICES_A_TURN`.

Source: DefaultConsumerIdsChangeListener.java (5.4.0), which tells at once; the turns are ours.
"""

import collections
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.broker.clients.client_registry import ConsumerGroup
from rocketpy.remoting.connection.channel import Channel

MAX_NOTICES_A_TURN: Final = 200


class MemberNotifier:
    """Groups whose members are to be told; safe from any thread.

    Args:
        tell: sends one notice: to whom, and of which group; runs on a connection's loop.
    """

    def __init__(self, tell: Callable[[Channel, str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: dict[str, ConsumerGroup] = {}
        self._is_scheduled = False
        # Of the group that is being told; only the scheduled turn uses them.
        self._name = ""
        self._members: collections.deque[Channel] = collections.deque()

    def add(self, group: ConsumerGroup) -> None:
        """Have those told who are members when its turn comes; returns at once."""
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
        """Go on in the next turn of a connection's loop, also when that connection is closed."""
        if channel.call_soon(self._run, channel):
            return
        with self._lock:  # the server has stopped: nobody is left to be told
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
