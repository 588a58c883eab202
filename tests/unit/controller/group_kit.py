"""Groups of replicas for tests."""

from collections.abc import Iterable
from dataclasses import replace

from rocketpy.controller.events import AnyEvent, IdApplied
from rocketpy.controller.liveness import Heartbeat, Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.controller.rules import Standing, Verdict, elected
from rocketpy.proto.wire.codes import ResponseCode

NAME = "broker-a"
CLUSTER = "c1"


def address(number: int) -> str:
    return f"10.0.0.{number}:10911"


def applied(*numbers: int, name: str = NAME) -> list[AnyEvent]:
    return [IdApplied(name, CLUSTER, each, address(each), f"{address(each)};1") for each in numbers]


def groups_of(*events: AnyEvent) -> ReplicaGroups:
    groups = ReplicaGroups()
    groups.apply(events)
    return groups


def only(groups: ReplicaGroups, name: str = NAME) -> ReplicaGroup:
    group = groups.get(name)
    assert group is not None
    return group


def group_with(
    replicas: Iterable[int], *, master: int | None = None, members: Iterable[int] = ()
) -> ReplicaGroup:
    """Return a group with an elected master, and more members of its set."""
    groups = groups_of(*applied(*replicas))
    if master is not None:
        groups.apply(elected(only(groups), master, {}))
    found = only(groups)
    return replace(found, members=found.members | frozenset(members))


def standing(epoch: int = 1, end: int = 0, priority: int = 9) -> Standing:
    return Standing(epoch, end, priority)


def heartbeat(
    at_ms: int,
    *,
    connection: str | None = None,
    needs_all: bool | None = None,
    timeout_ms: int = 10_000,
    end: int = 0,
    epoch: int = 1,
) -> Heartbeat:
    return Heartbeat(
        received_ms=at_ms,
        timeout_ms=timeout_ms,
        standing=standing(epoch, end),
        connection=connection,
        needs_all=needs_all,
    )


def hear_another_group(liveness: Liveness, from_ms: int, to_ms: int) -> None:
    """Take the heartbeats of another group each second: the controller is not cut off."""
    for at_ms in range(from_ms, to_ms, 1_000):
        liveness.take(ReplicaKey("another", 1), heartbeat(at_ms, connection="another"))


def code_of(verdict: Verdict) -> ResponseCode:
    assert verdict.is_accepted or not verdict.events
    assert verdict.is_accepted or verdict.remark
    return verdict.code
