"""State and leadership of a group of controllers in etcd.

Keys are below `/rocketpy/controller/<controllerDLegerGroup>/`: `leader` has the address of the
leader and belongs to an etcd lease; `groups/<name>` has the state of a group; `stateId` has the id
of the whole state. A leader writes with a transaction that compares the creation revision of
`leader`, so that one that has lost its leadership stores nothing, although it may still believe in
itself.

A leader that gets no answer to a write cannot know whether it was stored. It gives its leadership
up, and the next leader (perhaps itself) reads what is stored.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
import structlog

from rocketpy.controller.config import Peer
from rocketpy.controller.etcd.client import Etcd, EtcdError, Json, decoded, encoded
from rocketpy.controller.events import AnyEvent, GroupStored, decode_events, encode_events
from rocketpy.controller.replica_groups import ReplicaGroups
from rocketpy.controller.state_log import new_state_id
from rocketpy.errors import StoreFormatError, StoreReadOnlyError
from rocketpy.runtime.clock import Clock

_logger = structlog.get_logger(__name__)

LEADER_TTL_S: Final = 5
"""Time after which etcd ends the leadership of a silent leader."""
_OWN_SHARE: Final = 0.8
"""Share of that time for which a leader believes in itself: clocks run at different rates."""


class EtcdStateLog:
    """Log and leadership of one controller.

    Args:
        etcd: the client.
        group: name of the controller group.
        itself: returns id and address of this controller.
        clock: monotonic time.
        new_id: returns a random id of the state.

    Attributes:
        leader: the leader at the last look; None if there was none.
        state_id: see `StateLog.state_id`.
    """

    def __init__(
        self,
        etcd: Etcd,
        group: str,
        itself: Callable[[], Peer],
        clock: Clock,
        *,
        new_id: Callable[[], str] = new_state_id,
    ) -> None:
        self.leader: Peer | None = None
        self.state_id: str = ""
        self._new_id = new_id
        self._etcd = etcd
        self._itself = itself
        self._clock = clock
        root = f"/rocketpy/controller/{group}/"
        self._leader_key = encoded(root + "leader")
        self._id_key = encoded(root + "stateId")
        self._groups_root = root + "groups/"
        self._lease = ""
        self._revision = ""
        self._valid_until_ms = 0
        self._is_loaded = False
        # State after the last write.
        self._groups = ReplicaGroups()

    @property
    def is_leader(self) -> bool:
        """Whether this controller leads now, with the stored state.

        A process that was stopped (SIGSTOP) does not after its time.
        """
        return self._is_loaded and self._holds_key

    @property
    def _holds_key(self) -> bool:
        return bool(self._revision) and self._clock.monotonic_ms() < self._valid_until_ms

    async def campaign(self) -> bool:
        """Take the leader's key if there is none; return whether this controller has it.

        It leads after `load`.

        Raises:
            EtcdError: etcd does not answer.
        """
        sent_ms = self._clock.monotonic_ms()
        granted = await self._etcd.call("lease/grant", {"TTL": str(LEADER_TTL_S)})
        lease = str(granted["ID"])
        peer = self._itself()
        value = orjson.dumps({"id": peer.id, "address": peer.address})
        put = {"key": self._leader_key, "value": encoded(value), "lease": lease}
        request = {
            "compare": [self._created("0")],
            "success": [{"requestPut": put}],
            "failure": [{"requestRange": {"key": self._leader_key}}],
        }
        answer = await self._etcd.call("kv/txn", request)
        if not answer.get("succeeded"):
            self.leader = _leader_in(answer)
            await self._etcd.call("lease/revoke", {"ID": lease})
            return False
        self._lease, self._revision = lease, str(answer["header"]["revision"])
        self._is_loaded = False
        self._extend(sent_ms)
        self.leader = peer
        return True

    async def look(self) -> Peer | None:
        """Return the present leader, or None.

        Raises:
            EtcdError: etcd does not answer.
        """
        answer = await self._etcd.call("kv/range", {"key": self._leader_key})
        self.leader = _peer_of(answer.get("kvs"))
        return self.leader

    async def keep(self) -> bool:
        """Extend the leadership; return whether this controller still leads.

        Raises:
            EtcdError: etcd does not answer; the leadership lasts until its time has passed.
        """
        sent_ms = self._clock.monotonic_ms()
        answer = await self._etcd.call("lease/keepalive", {"ID": self._lease})
        if not int(answer.get("result", {}).get("TTL", 0)):
            self._revision = ""
            return False
        self._extend(sent_ms)
        return self.is_leader

    async def resign(self) -> None:
        """Give the leadership up; its end is certain although etcd may not answer."""
        lease, self._lease, self._revision = self._lease, "", ""
        self.leader = None
        if lease:
            try:
                await self._etcd.call("lease/revoke", {"ID": lease})
            except EtcdError as error:
                _logger.warning("leadership not revoked, it expires", error=str(error))

    async def load(self) -> Sequence[AnyEvent]:
        """See `StateLog.load`; called by a leader.

        Raises:
            StoreFormatError: a value is not a group.
            EtcdError: etcd does not answer.
        """
        first = self._groups_root.encode()
        after = first[:-1] + bytes([first[-1] + 1])
        request = {"key": encoded(first), "rangeEnd": encoded(after)}
        answer = await self._etcd.call("kv/range", request)
        events = [_group_in(each) for each in answer.get("kvs", ())]
        self._groups = ReplicaGroups()
        self._groups.apply(events)
        self.state_id = await self._read_or_make_id()
        if not self._holds_key:
            raise EtcdError("the leadership has ended while the state was read")
        self._is_loaded = True
        return events

    async def append(self, events: Sequence[AnyEvent]) -> None:
        """See `StateLog.append`; a failure ends the leadership."""
        if not self.is_leader:
            raise StoreReadOnlyError("this controller does not lead any more")
        groups, changed = self._groups, ReplicaGroups()
        changed.apply(groups.snapshot_of({event.group for event in events}))
        changed.apply(events)
        operations = [
            self._operation(name, changed) for name in dict.fromkeys(each.group for each in events)
        ]
        request = {"compare": [self._created(self._revision)], "success": operations}
        try:
            answer = await self._etcd.call("kv/txn", request)
        except EtcdError as error:
            await self.resign()
            raise StoreReadOnlyError(
                f"leadership given up, a write is uncertain: {error}"
            ) from error
        if not answer.get("succeeded"):
            self._revision = ""
            raise StoreReadOnlyError("another controller leads now: nothing was stored")
        groups.apply(events)

    async def close(self) -> None:
        """See `StateLog.close`."""
        await self.resign()
        await self._etcd.close()

    async def _read_or_make_id(self) -> str:
        made = self._new_id()
        request = {
            "compare": [self._created(self._revision), _created(self._id_key, "0")],
            "success": [{"requestPut": {"key": self._id_key, "value": encoded(made)}}],
            "failure": [{"requestRange": {"key": self._id_key}}],
        }
        answer = await self._etcd.call("kv/txn", request)
        if answer.get("succeeded"):
            return made
        entries = _read_entries(answer)
        if not entries:
            raise EtcdError("the leadership has ended while the state was read")
        return decoded(entries[0]["value"]).decode("ascii", "replace")

    def _extend(self, sent_ms: int) -> None:
        self._valid_until_ms = sent_ms + int(LEADER_TTL_S * 1_000 * _OWN_SHARE)

    def _created(self, revision: str) -> Json:
        return _created(self._leader_key, revision)

    def _operation(self, name: str, changed: ReplicaGroups) -> Json:
        key = encoded(self._groups_root + name)
        group = changed.get(name)
        if group is None:
            return {"requestDeleteRange": {"key": key}}
        return {"requestPut": {"key": key, "value": encoded(encode_events([group.stored()]))}}


def _group_in(entry: Json) -> GroupStored:
    try:
        (event,) = decode_events(decoded(entry["value"]))
    except ValueError as error:
        raise StoreFormatError(f"a value in etcd is not a broker group: {error}") from error
    if not isinstance(event, GroupStored):
        raise StoreFormatError("a value in etcd is not a broker group")
    return event


def _created(key: str, revision: str) -> Json:
    return {"key": key, "target": "CREATE", "result": "EQUAL", "createRevision": revision}


def _leader_in(answer: Json) -> Peer | None:
    """Return the leader that a transaction has read."""
    return _peer_of(_read_entries(answer))


def _read_entries(answer: Json) -> Sequence[Json] | None:
    """Return what a transaction has read."""
    for each in answer.get("responses", ()):
        found: Any = each.get("response_range") or each.get("responseRange") or {}
        entries: Sequence[Json] | None = found.get("kvs")
        return entries
    return None


def _peer_of(entries: Sequence[Json] | None) -> Peer | None:
    if not entries:
        return None
    value = orjson.loads(decoded(entries[0]["value"]))
    return Peer(str(value["id"]), str(value["address"]))
