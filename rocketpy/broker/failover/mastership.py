"""Mastership of a replica: its sync-state set, its lease, and the limits of its broker.

Lives on the loop of the broker. The flags that the broker reads may be read on any thread.
"""

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketpy.broker.failover.controller_client import ControllerClient, GroupInfo
from rocketpy.broker.failover.lease import Lease
from rocketpy.broker.failover.node_state import MasterInfo
from rocketpy.broker.failover.sync_state_set import SyncStateSet
from rocketpy.broker.replication.acknowledgements import (
    NOT_ENOUGH,
    ReplicaKey,
    ReplicaProgress,
)
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.errors import RocketPyError
from rocketpy.proto.replication.pair_frames import DiskState
from rocketpy.proto.wire.codes import ROLE_CHANGE

_log = structlog.get_logger(__name__)

_LEASE_ENDED: Final = f"{ROLE_CHANGE} the lease of this master has ended: no controller answers"
_HANDS_OVER: Final = f"{ROLE_CHANGE} this master hands over to another replica"
_REPLICAS_JOIN: Final = f"{ROLE_CHANGE} the replicas of the new master are joining"
_JOINED_BY_MS: Final = 5_000
"""Time after its start within which replicas usually join a new master."""
_HAND_OVER_MS: Final = 3_000
"""Time after which sends are accepted again if no other replica was elected."""
_LIST_PAUSE_MS: Final = 1_000
_JOIN_MS: Final = 5_000
"""Longest wait for a joining replica to become level: senders wait for that replica, too."""


class Mastership:
    """Mastership of this replica in one epoch.

    Args:
        own_id: id of this replica.
        info: the group when this replica was elected.
        min_in_sync: returns the smallest sync-state set with which sends are accepted.
        needs_all: whether a message needs every replica of the set.
        not_level_ms: see `SyncStateSet`.
        now_ms: returns monotonic time.
    """

    def __init__(
        self,
        own_id: int,
        info: GroupInfo,
        *,
        min_in_sync: Callable[[], int],
        needs_all: bool,
        not_level_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.master: MasterInfo = info.master
        self._own_id = own_id
        self._min_in_sync = min_in_sync
        self._needs_all = needs_all
        self._not_level_ms = not_level_ms
        self._now_ms = now_ms
        self._lease = Lease()
        self._info = info
        self._set: SyncStateSet | None = None
        self._hands_over_until_ms = 0
        self._has_ended = False
        self._asked_ms = 0
        self._was_sent = False
        self._listed: frozenset[int] = frozenset()
        self._list_again_ms = 0
        self._joined_by_ms = now_ms() + _JOINED_BY_MS

    # -- read by the broker ------------------------------------------------------------------

    def opened(self, end: int) -> None:
        """Begin at the end of the recovered log."""
        self._set = SyncStateSet(
            self._own_id,
            self._info.members or {self._own_id},
            self._info.set_epoch,
            epoch_start=end,
            not_level_ms=self._not_level_ms,
            now_ms=self._now_ms(),
        )

    def needed(self) -> frozenset[int] | None:
        """Return the replicas that must confirm a message; None: copies are counted."""
        if not self._needs_all:
            return None
        return frozenset() if self._set is None else self._set.needed

    def may_acknowledge(self) -> bool:
        """Return whether messages may be acknowledged: to senders, and to consumers."""
        if self._needs_all:
            # Also those that were stored while the set was larger: they are on one replica now.
            return self._set is not None and not self._has_few
        return not self._has_ended and self._lease.is_held(self._now_ms())

    def send_refusal(self) -> str | None:
        """Return why sends are refused; None if they are not."""
        if self._has_ended or self._now_ms() < self._hands_over_until_ms:
            return _HANDS_OVER
        if not self._needs_all and not self.may_acknowledge():
            return _LEASE_ENDED
        if self._has_few:
            return _REPLICAS_JOIN if self.is_joining else NOT_ENOUGH
        return None

    @property
    def is_joining(self) -> bool:
        """Whether too few replicas have joined since the election."""
        return self._has_few and self._now_ms() < self._joined_by_ms

    @property
    def _has_few(self) -> bool:
        return self._set is not None and len(self._set.stored) < self._min_in_sync()

    @property
    def lease_ms(self) -> int | None:
        """Time until the lease ends; None where it is not needed."""
        return None if self._needs_all else self._lease.left_ms(self._now_ms())

    @property
    def members(self) -> frozenset[int]:
        """Stored sync-state set."""
        return frozenset() if self._set is None else self._set.stored

    @property
    def awaited(self) -> frozenset[int]:
        """Replicas of the stored set and of the asked one; empty before the log is opened."""
        return frozenset() if self._set is None else self._set.needed | {self._own_id}

    @property
    def set_epoch(self) -> int:
        """Epoch of the stored sync-state set."""
        return self._info.set_epoch if self._set is None else self._set.set_epoch

    # -- events ------------------------------------------------------------------------------

    def lease_renewed(self, sent_ms: int, lease_ms: int) -> None:
        """Extend the lease by the answer to a heartbeat."""
        self._lease.renewed(sent_ms, lease_ms)

    def set_stored(self, members: frozenset[int], set_epoch: int) -> None:
        """Apply the set that the controller has stored."""
        if self._set is not None:
            self._set.set_stored(members, set_epoch, self._now_ms())

    def hand_over(self) -> bool:
        """Refuse sends until another replica is elected or some seconds have passed.

        Returns:
            False where copies are counted: there the lease decides, and a request that any client
            can send must not end it.
        """
        if self._needs_all:
            self._hands_over_until_ms = self._now_ms() + _HAND_OVER_MS
        return self._needs_all

    def end(self) -> None:
        """End the mastership: refuse sends; where copies are counted, acknowledge nothing more."""
        self._has_ended = True

    async def tick(self, server: HaServer, client: ControllerClient) -> None:
        """Check the set, and ask the controller for a change; called several times a second.

        Args:
            server: HA port of the running broker.
            client: calls the controller.
        """
        state = self._set
        if state is None:
            return
        connected = {
            each.broker_id: each.stream.progress
            for each in server.streaming
            if each.broker_id is not None
            and each.stream is not None
            # A replica with a full disk cannot follow or become the master: it leaves the set.
            and each.stream.progress.state is DiskState.WRITING
        }
        await self._count_listed(state, connected, client)
        replicas = {key: each.confirmed for key, each in connected.items() if each.counts}
        server.membership_changed()
        now_ms = self._now_ms()
        confirmed = server.acknowledgements.confirmed_end
        wanted = state.wanted(
            replicas, end=server.log.end_phy_offset, confirmed=confirmed, now_ms=now_ms
        )
        if wanted is not None:
            state.ask(wanted)
            self._asked_ms, self._was_sent = now_ms, False
            # New members are waited for before the controller may elect them.
            server.membership_changed()
        if state.is_asking:
            await self._change(state, replicas, server, client)

    async def _count_listed(
        self,
        state: SyncStateSet,
        connected: Mapping[int, ReplicaProgress],
        client: ControllerClient,
    ) -> None:
        """Count replicas that have not proven their ids, if the controller has given these ids.

        Sends would otherwise wait for a peer with an invented id until the controller refuses it.
        """
        waiting = {
            number: each
            for number, each in connected.items()
            if not each.counts and isinstance(each.key, ReplicaKey)
        }

        def count() -> None:
            for number, each in waiting.items():
                each.counts = number in (self._listed | state.stored) - {self._own_id}

        # Before the call: members must not wait for the controller's answer about others.
        count()
        now_ms = self._now_ms()
        has_unknown = any(not waiting[number].counts for number in waiting.keys() - {self._own_id})
        if has_unknown and now_ms >= self._list_again_ms:
            self._list_again_ms = now_ms + _LIST_PAUSE_MS
            try:
                self._listed = await client.replica_ids()
            except RocketPyError as error:
                _log.debug("replicas not listed", error=str(error))
            count()

    async def _change(
        self,
        state: SyncStateSet,
        replicas: dict[int, int],
        server: HaServer,
        client: ControllerClient,
    ) -> None:
        asked = state.retry()
        joining = asked - state.stored
        # They also need the messages that were acknowledged before the master waited for them.
        bound = server.acknowledged_end
        is_level = all(each in replicas and replicas[each] >= bound for each in joining)
        if not is_level and not self._was_sent:
            if self._now_ms() - self._asked_ms > _JOIN_MS or not joining <= replicas.keys():
                state.failed()
                server.membership_changed()
            return
        was_sent_before, self._was_sent = self._was_sent, True
        epoch = self.master.epoch
        try:
            stored = await client.alter(self._own_id, epoch, asked, state.set_epoch)
            if stored is None:
                await self._refused(state, client, was_sent_before=was_sent_before)
            elif stored.members is not None:
                state.set_stored(stored.members, stored.set_epoch, self._now_ms())
        except RocketPyError as error:
            # The controller may have stored the set: it is waited for until an answer says so.
            _log.warning("sync-state set not changed", members=sorted(asked), error=str(error))
            return
        server.membership_changed()
        _log.info("sync-state set known", members=sorted(state.stored), set_epoch=state.set_epoch)

    async def _refused(
        self, state: SyncStateSet, client: ControllerClient, *, was_sent_before: bool
    ) -> None:
        before = state.set_epoch
        info = await client.replica_info()
        if info is None or info.master != self.master._replace(address=info.master.address):
            return  # another master: the node changes its role
        if info.members is not None:
            state.set_stored(info.members, info.set_epoch, self._now_ms())
        if state.set_epoch != before:
            return
        if not was_sent_before:
            state.failed()
            return
        # An earlier request without an answer may still be on its way: a new epoch of the same set
        # fences it. Apache's controller refuses that, so that there the members stay needed.
        fenced = await client.alter(
            self._own_id, self.master.epoch, state.stored, before, fences=True
        )
        if fenced is not None and fenced.members is not None:
            state.set_stored(fenced.members, fenced.set_epoch, self._now_ms())
