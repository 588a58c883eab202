"""Who is connected: producers and consumers, by group and by channel.

Both tables are fed by heartbeats and pruned three ways: the client says good-bye, its
connection closes, or it stays silent for ``channelExpiredTimeout`` (120 s, looked at every
10 s). Whatever changes the members or the subscriptions of a consumer group is reported to
`on_change`, which tells every member to rebalance.

Source: ProducerManager.java, ConsumerManager.java, ConsumerGroupInfo.java (5.4.0).
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from rocketpy.proto.subscription import SubscriptionData
from rocketpy.remoting.channel import Channel

SCAN_INTERVAL_MS: Final = 10_000
MAX_GROUPS_PER_CHANNEL: Final = 1_000
MAX_MEMBERS: Final = 200_000


class ClientChannel:
    """One client on one connection.

    Attributes:
        channel: the connection.
        client_id: as the client calls itself.
        language: LanguageCode value.
        version: the client's version ordinal.
        last_update_ms: wall time of its last heartbeat.
    """

    __slots__ = ("channel", "client_id", "language", "last_update_ms", "version")

    def __init__(
        self, channel: Channel, client_id: str, language: int, version: int, last_update_ms: int
    ) -> None:
        self.channel = channel
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update_ms = last_update_ms


class _Memberships:
    """Which groups each connection is in, and how many memberships there are; bounded."""

    def __init__(self, max_per_channel: int, max_members: int) -> None:
        self.max_per_channel = max_per_channel
        self.max_members = max_members
        self.count = 0
        self._groups: dict[Channel, set[str]] = {}

    def groups_of(self, channel: Channel) -> list[str]:
        return list(self._groups.get(channel, ()))

    def add(self, channel: Channel, group: str) -> None:
        groups = self._groups.setdefault(channel, set())
        if group not in groups:
            groups.add(group)
            self.count += 1

    def remove(self, channel: Channel, group: str) -> None:
        groups = self._groups.get(channel)
        if groups is None or group not in groups:
            return
        groups.remove(group)
        self.count -= 1
        if not groups:
            del self._groups[channel]

    def has_room(self, channel: Channel, groups: set[str]) -> bool:
        present = self._groups.get(channel, set())
        new = len(groups - present)
        return not new or (
            len(present) + new <= self.max_per_channel and self.count + new <= self.max_members
        )


class _MemberTable:
    """What both tables share: a lock, and bounds.

    Args:
        max_per_channel: groups one connection may be in.
        max_members: members of all groups together.
    """

    def __init__(
        self, max_per_channel: int = MAX_GROUPS_PER_CHANNEL, max_members: int = MAX_MEMBERS
    ) -> None:
        self._lock = threading.Lock()
        self._memberships = _Memberships(max_per_channel, max_members)

    @property
    def max_per_channel(self) -> int:
        """Groups one connection may be in."""
        return self._memberships.max_per_channel

    @property
    def max_members(self) -> int:
        """Members of all groups together."""
        return self._memberships.max_members

    def has_room(self, channel: Channel, groups: set[str]) -> bool:
        """Whether a connection may be in these groups too."""
        with self._lock:
            return self._memberships.has_room(channel, groups)


class ProducerTable(_MemberTable):
    """Producer groups and their connections; safe from any thread.

    Args:
        max_per_channel: groups one connection may be in.
        max_members: members of all groups together.
    """

    def __init__(
        self,
        max_per_channel: int = MAX_GROUPS_PER_CHANNEL,
        max_members: int = MAX_MEMBERS,
    ) -> None:
        super().__init__(max_per_channel, max_members)
        self._groups: dict[str, dict[Channel, ClientChannel]] = {}

    def register(self, group: str, client: ClientChannel) -> None:
        """Add a client to a group, or refresh it."""
        with self._lock:
            self._groups.setdefault(group, {})[client.channel] = client
            self._memberships.add(client.channel, group)

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a client which says good-bye."""
        with self._lock:
            self._remove(group, channel)

    def forget_channel(self, channel: Channel) -> None:
        """Remove a closed connection from every group."""
        with self._lock:
            for group in self._memberships.groups_of(channel):
                self._remove(group, channel)

    def expire(self, older_than_ms: int) -> list[Channel]:
        """Remove clients whose last heartbeat is older than a wall time; they should be closed."""
        dead: list[Channel] = []
        with self._lock:
            for group, members in list(self._groups.items()):
                for channel, client in list(members.items()):
                    if client.last_update_ms < older_than_ms:
                        self._remove(group, channel)
                        dead.append(channel)
        return dead

    def clients(self, group: str) -> list[ClientChannel]:
        """The connected members of a group; empty when it is unknown."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def groups(self) -> dict[str, list[ClientChannel]]:
        """Every group with its members."""
        with self._lock:
            return {group: list(members.values()) for group, members in self._groups.items()}

    def find_client(self, client_id: str) -> ClientChannel | None:
        """The connection of a producer known by its client id."""
        with self._lock:
            for members in self._groups.values():
                for client in members.values():
                    if client.client_id == client_id:
                        return client
        return None

    def _remove(self, group: str, channel: Channel) -> None:
        self._memberships.remove(channel, group)
        members = self._groups.get(group)
        if members is not None and members.pop(channel, None) is not None and not members:
            del self._groups[group]


class ConsumerGroup:
    """One consumer group while it has members.

    Attributes:
        name: the group.
        consume_type: CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP.
        message_model: CLUSTERING or BROADCASTING.
        consume_from_where: as the last heartbeat said.
        subscriptions: topic to what the group wants of it.
        last_update_ms: wall time of the last change or heartbeat.
    """

    __slots__ = (
        "_members",
        "consume_from_where",
        "consume_type",
        "last_update_ms",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ""
        self.message_model = ""
        self.consume_from_where = ""
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.last_update_ms = 0
        self._members: dict[Channel, ClientChannel] = {}

    @property
    def is_broadcast(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == "BROADCASTING"

    def clients(self) -> list[ClientChannel]:
        """The connected members."""
        return list(self._members.values())

    def client_ids(self) -> list[str]:
        """Ids of the connected members, each once."""
        return list(dict.fromkeys(client.client_id for client in self.clients()))

    def find_client(self, client_id: str) -> ClientChannel | None:
        """The member of that id."""
        return next((one for one in self.clients() if one.client_id == client_id), None)

    def put_member(self, client: ClientChannel) -> bool:
        """Add or refresh a member; true when it is new or changed its id."""
        old = self._members.get(client.channel)
        self._members[client.channel] = client
        return old is None or old.client_id != client.client_id

    def remove_member(self, channel: Channel) -> ClientChannel | None:
        """Remove a connection; the member it was, or None."""
        return self._members.pop(channel, None)

    def put_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace what the group subscribes to; true when topics came or went.

        An older version of a topic's subscription never replaces a newer one.
        """
        wanted = {one.topic: one for one in subscriptions}
        table = dict(self.subscriptions)
        changed = False
        for topic, new in wanted.items():
            old = table.get(topic)
            if old is None:
                changed = True
                table[topic] = new
            elif new.sub_version > old.sub_version:
                table[topic] = new
        for topic in [topic for topic in table if topic not in wanted]:
            del table[topic]
            changed = True
        self.subscriptions = table
        return changed


class ConsumerTable(_MemberTable):
    """Consumer groups which have members; safe from any thread.

    Args:
        max_per_channel: groups one connection may be in.
        max_members: members of all groups together.

    Attributes:
        on_change: called (without a lock held) with a group whose members or topics changed.
    """

    def __init__(
        self,
        max_per_channel: int = MAX_GROUPS_PER_CHANNEL,
        max_members: int = MAX_MEMBERS,
    ) -> None:
        super().__init__(max_per_channel, max_members)
        self.on_change: Callable[[ConsumerGroup], None] | None = None
        self._groups: dict[str, ConsumerGroup] = {}

    def register(
        self,
        group: str,
        client: ClientChannel,
        subscriptions: Iterable[SubscriptionData] | None,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
    ) -> bool:
        """Take one heartbeat of a consumer.

        Args:
            group: consumer group.
            client: who sent it, with the time of now.
            subscriptions: the whole set; None keeps what is known (heartbeat V2).
            consume_type: of the group, last writer wins.
            message_model: of the group.
            consume_from_where: of the group.

        Returns:
            Whether members or topics changed.
        """
        with self._lock:
            entry = self._groups.get(group)
            if entry is None:
                entry = self._groups[group] = ConsumerGroup(group)
            entry.consume_type = consume_type
            entry.message_model = message_model
            entry.consume_from_where = consume_from_where
            entry.last_update_ms = client.last_update_ms
            changed = entry.put_member(client)
            self._memberships.add(client.channel, group)
            if subscriptions is not None and entry.put_subscriptions(subscriptions):
                changed = True
        if changed:
            self._report(entry)
        return changed

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a client which says good-bye."""
        with self._lock:
            entry = self._remove(group, channel)
        if entry is not None:
            self._report(entry)

    def forget_channel(self, channel: Channel) -> None:
        """Remove a closed connection from every group."""
        with self._lock:
            names = self._memberships.groups_of(channel)
            touched = [entry for name in names if (entry := self._remove(name, channel))]
        for entry in touched:
            self._report(entry)

    def expire(self, older_than_ms: int) -> list[Channel]:
        """Remove clients whose last heartbeat is older than a wall time; they should be closed."""
        dead: list[Channel] = []
        touched: dict[str, ConsumerGroup] = {}
        with self._lock:
            for entry in list(self._groups.values()):
                for client in entry.clients():
                    if client.last_update_ms < older_than_ms:
                        self._remove(entry.name, client.channel)
                        dead.append(client.channel)
                        touched[entry.name] = entry
        for entry in touched.values():
            self._report(entry)
        return dead

    def group(self, name: str) -> ConsumerGroup | None:
        """A group with members, or None."""
        return self._groups.get(name)

    def groups(self) -> list[ConsumerGroup]:
        """Every group with members."""
        with self._lock:
            return list(self._groups.values())

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic, or None."""
        entry = self._groups.get(group)
        return None if entry is None else entry.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Names of the groups with members that subscribe to a topic."""
        return {entry.name for entry in self.groups() if topic in entry.subscriptions}

    def _remove(self, group: str, channel: Channel) -> ConsumerGroup | None:
        self._memberships.remove(channel, group)
        entry = self._groups.get(group)
        if entry is None or entry.remove_member(channel) is None:
            return None
        if not entry.clients():
            del self._groups[group]
        return entry

    def _report(self, entry: ConsumerGroup) -> None:
        if self.on_change is not None:
            self.on_change(entry)
