"""Suspended pops: which one a message resumes, and the state kept for waiting groups."""

from typing import Any

from rocketpy.broker.filters.message_filters import TagFilter
from rocketpy.broker.long_polling.suspended_requests import SuspendedRequests
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.suspended_pops import Listener, SuspendedPop, SuspendedPops, keys_of


class Wanted:
    is_ordered = False
    topic = "T"

    def __init__(self, group: str, queue_id: int) -> None:
        self.group = group
        self.queue_id = queue_id


class Source:
    ready = False

    def has_message(self, _wanted: Any) -> bool:
        return self.ready

    def free_at_ms(self, _wanted: Any) -> int | None:
        return None


class Owner:
    """Channels of the same name are equal; notes the group and queue of resumed requests."""

    def __init__(self, name: str, resumed: list[Any]) -> None:
        self.name = name
        self.resumed = resumed

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and other.name == self.name

    def resume(self, request: Any, _pool: object = None) -> None:
        self.resumed.append((request.wanted.group, request.wanted.queue_id))


class Kit:
    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.suspended = SuspendedRequests("pops", 100, 3)
        self.waiters = SuspendedPops(self.suspended, self.listeners.append)
        self.source = Source()
        self.resumed: list[Any] = []

    def suspend(
        self,
        group: str,
        queue_id: int = -1,
        tags: frozenset[int] | None = None,
        owner: str = "owner",
    ) -> bool:
        queues = [GroupQueue("T", group, queue_id), GroupQueue(f"%RETRY%{group}_T", group, -1)]
        waiting = SuspendedPop(
            Wanted(group, queue_id),
            keys_of(queues),
            Owner(owner, self.resumed),
            10_000,
            self.source,
            message_filter=None if tags is None else TagFilter(tags),
            reply=lambda _: None,
        )
        return self.waiters.suspend(waiting, queues, 0)

    def arrive(self, topic: str = "T", queue_id: int = 0, tags_code: int = 0) -> list[Any]:
        self.resumed.clear()
        self.waiters.on_arrival(topic, queue_id, 1, tags_code)
        return list(self.resumed)


def test_suspended_pops_listen_once_from_first_suspension() -> None:
    kit = Kit()
    assert not kit.listeners
    kit.suspend("g")
    kit.suspend("h")
    assert kit.listeners == [kit.waiters.on_arrival]


def test_suspended_pops_arrival_resumes_one_of_each_group() -> None:
    kit = Kit()
    for group in ("g", "g", "h"):
        kit.suspend(group)
    kit.suspend("g", 0)
    assert [group for group, _ in kit.arrive()] == ["g", "h"]
    assert [group for group, _ in kit.arrive()] == ["g"]
    assert len(kit.arrive()) == 1
    assert not kit.arrive()
    assert not kit.waiters.groups.get("T"), "groups that do not wait are not remembered"


def test_suspended_pops_lost_request_resumes_next() -> None:
    kit = Kit()
    for owner in ("lost", "kept"):
        kit.suspend("g", owner=owner)
    kit.suspend("h", 0, owner="lost")
    kit.suspend("h", 0, owner="kept")
    assert kit.arrive() == [("g", -1), ("h", 0)]
    kit.resumed.clear()
    kit.waiters.forget(Owner("lost", []))
    assert kit.resumed == [("g", -1), ("h", 0)]
    kit.suspend("g", owner="lost")
    kit.suspend("g", owner="third")
    kit.resumed.clear()
    kit.waiters.forget(Owner("lost", []))
    kit.waiters.forget(Owner("nobody", []))
    assert not kit.resumed, "it was not woken"


def test_suspended_pops_filter_selects_request() -> None:
    kit = Kit()
    kit.suspend("g", tags=frozenset({5}))
    assert not kit.arrive(tags_code=4)
    assert kit.arrive(tags_code=5)


def test_suspended_pops_retried_message_resumes_only_its_group() -> None:
    kit = Kit()
    kit.suspend("g")
    kit.suspend("h")
    assert [group for group, _ in kit.arrive("%RETRY%h_T")] == ["h"]


def test_suspended_pops_requests_of_group_are_bounded() -> None:
    kit = Kit()
    assert all(kit.suspend("g") for _ in range(3))
    assert not kit.suspend("g")
    assert kit.suspend("h")


def test_suspended_pops_message_before_suspension_is_not_missed() -> None:
    kit = Kit()
    kit.source.ready = True
    kit.suspend("g")
    assert kit.resumed == [("g", -1)]
