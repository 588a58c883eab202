"""Events: the changes of broker groups that a controller stores.

A request becomes events; they are stored, then applied, then answered. Events carry the epochs that
they lead to, so that replaying them gives the same state, and a missing one is noticed. A snapshot
is a list of `GroupStored`.

Source: the events of ReplicasInfoManager (5.4.0); the stored form is ours.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

MAX_ID: Final = 1 << 31
"""Bound of replica ids: far above what a group gives, far below the end of Java's long."""

_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_ID)]
_Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class Event(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    """Base of all events.

    Attributes:
        group: the broker name.
    """

    group: str


class IdApplied(Event, frozen=True, tag="id_applied"):
    """Replica with a new id; the first one makes the group."""

    cluster: str
    replica_id: _Id
    address: str
    check_code: str


class AddressChanged(Event, frozen=True, tag="address_changed"):
    """Address of a replica that has moved."""

    replica_id: _Id
    address: str


class MasterElected(Event, frozen=True, tag="master_elected"):
    """Master of a new epoch, alone in the sync-state set."""

    replica_id: _Id
    master_epoch: _Epoch
    set_epoch: _Epoch


class MasterLost(Event, frozen=True, tag="master_lost"):
    """End of a mastership without a successor; epochs and set stay."""


class SetAltered(Event, frozen=True, tag="set_altered"):
    """Sync-state set that the master has asked for."""

    members: tuple[_Id, ...]
    set_epoch: _Epoch


class ReplicaRemoved(Event, frozen=True, tag="replica_removed"):
    """End of a replica; its id is never given again."""

    replica_id: _Id


class GroupRemoved(Event, frozen=True, tag="group_removed"):
    """End of a group with all its replicas."""


class ReplicaStored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replica in a `GroupStored`."""

    replica_id: _Id
    address: str
    check_code: str


class GroupStored(Event, frozen=True, tag="group_stored"):
    """Complete state of a group, as part of a snapshot.

    Attributes:
        last_id: highest id that the group has given.
    """

    cluster: str
    replicas: tuple[ReplicaStored, ...]
    last_id: _Id
    master_id: _Id | None
    master_epoch: _Epoch
    members: tuple[_Id, ...]
    set_epoch: _Epoch


AnyEvent: TypeAlias = (
    IdApplied
    | AddressChanged
    | MasterElected
    | MasterLost
    | SetAltered
    | ReplicaRemoved
    | GroupRemoved
    | GroupStored
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[AnyEvent, ...])


def encode_events(events: Sequence[AnyEvent]) -> bytes:
    """Return events as MessagePack."""
    return _encoder.encode(tuple(events))


def decode_events(data: bytes | memoryview) -> tuple[AnyEvent, ...]:
    """Decode events.

    Raises:
        ValueError: the bytes are not events of this version.
    """
    return _decoder.decode(data)
