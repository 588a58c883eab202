"""State and leadership of a group of controllers in etcd.

Keys are below `/rocketpy/controller/<controllerDLegerGroup>/`: `leader` has the address of the
leader and belongs to an etcd lease; `groups/<name>` has the state of a group; `stateId` has the id
of the whole state. A leader writes with a transaction that compares the creation revision of
`leader`, so that one that has lost its leadership stores nothing, although it may still believe in
itself. It also compares the modification revision of each group that it writes: a member that was
stopped may execute a request late, which another member has executed as well, and must not replace
what was stored since then.

A leader that gets no answer to a write cannot know whether it was stored. It gives its leadership
up, and the next leader (perhaps itself) reads what is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson
import structlog

from rocketpy.controller.config import Peer
from rocketpy.controller.etcd.client import Etcd, EtcdError, Json, decoded, encoded
from rocketpy.controller.events import AnyEvent, GroupStored, decode_events, encode_events
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.controller.state_log import new_state_id
from rocketpy.errors import StoreFormatError, StoreReadOnlyError
from rocketpy.runtime.clock import Clock

_logger = structlog.get_logger(__name__)

LEADER_TTL_S: Final = 5
"""Time after which etcd ends the leadership of a silent leader."""
_NEVER: Final = "0"
"""Revision of a key that does not exist."""
_OWN_SHARE: Final = 0.8
"""Share of that time for which a leader acts as leader: clocks run at different rates."""


class EtcdStateLog:
    """Log and leadership of one controller.

    Args:
        etcd: the client.
        group: name of the controller group.
        itself: returns id and address of this controller.
        clock: monotonic time.
        new_id: returns a random id of the state.

    Attributes:
        leader: the leader at the last request; None if there was none.
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
        # State after the last write, and the revision of the write of each group.
        self._groups = ReplicaGroups()
        self._written: dict[str, str] = {}

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
            self.leader = _peer_of(_found(answer).get(self._leader_key))
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
        self.leader = _peer_of(await self._leader_entry())
        return self.leader

    async def keep(self) -> bool:
        """Extend the leadership; return whether this controller still leads.

        Raises:
            EtcdError: etcd does not answer; the leadership lasts until its time has passed.
        """
        sent_ms = self._clock.monotonic_ms()
        answer = await self._etcd.call("lease/keepalive", {"ID": self._lease})
        # The lease lasts when the key was deleted by hand, and another controller leads then.
        entry = await self._leader_entry()
        has_key = entry is not None and entry["create_revision"] == self._revision
        if not has_key or not int(answer.get("result", {}).get("TTL", 0)):
            self._revision = ""
            return False
        self._extend(sent_ms)
        return self.is_leader

    async def resign(self) -> None:
        """Give the leadership up; this controller stops leading even if etcd does not answer."""
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
        entries: Sequence[Json] = answer.get("kvs", ())
        events = [_group_in(each) for each in entries]
        self._written = {
            event.group: str(entry["mod_revision"])
            for event, entry in zip(events, entries, strict=True)
        }
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
        values = {event.group: _value(changed.get(event.group)) for event in events}
        try:
            answer = await self._etcd.call("kv/txn", self._write_request(values))
        except EtcdError as error:
            await self.resign()
            raise StoreReadOnlyError(
                f"leadership given up, a write is uncertain: {error}"
            ) from error
        written = self._written_by(answer, values)
        if written is None:
            self._revision = ""
            raise StoreReadOnlyError("another controller has changed the state: nothing was stored")
        self._written.update(written)
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
        entry = _found(answer).get(self._id_key)
        if entry is None:
            raise EtcdError("the leadership has ended while the state was read")
        return decoded(entry["value"]).decode("ascii", "replace")

    async def _leader_entry(self) -> Json | None:
        answer = await self._etcd.call("kv/range", {"key": self._leader_key})
        return next(iter(answer.get("kvs", ())), None)

    def _group_key(self, name: str) -> str:
        return encoded(self._groups_root + name)

    def _write_request(self, values: Mapping[str, str]) -> Json:
        compared, operations, reads = [self._created(self._revision)], [], [self._leader_key]
        for name, value in values.items():
            key = self._group_key(name)
            revision = self._written.get(name, _NEVER)
            compared.append(
                {"key": key, "target": "MOD", "result": "EQUAL", "modRevision": revision}
            )
            operations.append(
                {"requestPut": {"key": key, "value": value}}
                if value
                else {"requestDeleteRange": {"key": key}}
            )
            reads.append(key)
        return {
            "compare": compared,
            "success": operations,
            "failure": [{"requestRange": {"key": key}} for key in reads],
        }

    def _written_by(self, answer: Json, values: Mapping[str, str]) -> dict[str, str] | None:
        """Return the revisions after a write; None: it was refused, and nothing is stored.

        A write that was executed before is refused as well: the client asks another member when
        one does not answer.

        Args:
            answer: to the write.
            values: the written value of each group; empty for one that was deleted.
        """
        if answer.get("succeeded"):
            revision = str(answer["header"]["revision"])
            return {name: revision if value else _NEVER for name, value in values.items()}
        found = _found(answer)
        leader = found.get(self._leader_key, {})
        entries = {name: found.get(self._group_key(name), {}) for name in values}
        is_stored = {name: each.get("value", "") for name, each in entries.items()} == values
        if not is_stored or leader.get("create_revision") != self._revision:
            return None
        return {name: str(each.get("mod_revision", _NEVER)) for name, each in entries.items()}

    def _extend(self, sent_ms: int) -> None:
        self._valid_until_ms = sent_ms + int(LEADER_TTL_S * 1_000 * _OWN_SHARE)

    def _created(self, revision: str) -> Json:
        return _created(self._leader_key, revision)


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


def _value(group: ReplicaGroup | None) -> str:
    """Return the value of a group; empty: its key is deleted."""
    return "" if group is None else encoded(encode_events([group.stored()]))


def _found(answer: Json) -> dict[str, Json]:
    """Return the values that a transaction has read, by key."""
    ranges = (
        each.get("response_range") or each.get("responseRange") or {}
        for each in answer.get("responses", ())
    )
    return {entry["key"]: entry for each in ranges for entry in each.get("kvs", ())}


def _peer_of(entry: Json | None) -> Peer | None:
    if entry is None:
        return None
    value = orjson.loads(decoded(entry["value"]))
    return Peer(str(value["id"]), str(value["address"]))
