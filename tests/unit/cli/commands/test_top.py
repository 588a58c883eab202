"""`rocketpy top`: pages and queries; tests/integration/cli has a real cluster."""

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import rocketpy.admin
from rocketpy.admin import Admin, BrokerStatus, GroupLag, QueueLag, QueueStatus, TopicStatus
from rocketpy.cli.commands import top
from rocketpy.cli.commands.top import Sample, Screen, View, page, take, view
from rocketpy.errors import RequestTimeoutError, TopicNotExistError
from rocketpy.proto.message_queue import MessageQueue

BROKER = BrokerStatus(cluster="c", broker="broker-a", broker_id=0, address="h:1", in_tps=3.0)


def topic(name: str, *ends: int, tps: float = 0.0) -> TopicStatus:
    queues = [
        QueueStatus(
            queue=MessageQueue(name, "broker-a", at), min_offset=0, max_offset=end, last_stored_ms=0
        )
        for at, end in enumerate(ends)
    ]
    return TopicStatus(topic=name, queues=queues, in_tps=tps)


def group(name: str, *at: tuple[int, int], tps: float = 0.0) -> tuple[GroupLag, int]:
    queues = [
        QueueLag(
            queue=MessageQueue("t", "broker-a", number),
            broker_offset=end,
            consumer_offset=offset,
            last_consumed_ms=0,
        )
        for number, (offset, end) in enumerate(at)
    ]
    return GroupLag(group=name, queues=queues, out_tps=tps), 2


def sample(at_s: float, *topics: TopicStatus, groups: Any = ()) -> Sample:
    return Sample(at_s=at_s, brokers=[BROKER], topics=topics, groups=groups)


def test_first_page_has_the_brokers_own_rates() -> None:
    shown = view(sample(1.0, topic("t", 5, 7, tps=1.5), groups=[group("g", (3, 5), tps=0.5)]), None)
    assert shown["topics"] == [{"topic": "t", "in_per_s": 1.5, "messages": 12, "queues": 2}]
    assert shown["groups"] == [
        {"group": "g", "out_per_s": 0.5, "lag": 2, "members": 2, "topics": 1}
    ]
    assert shown["brokers"][0]["in_per_s"] == 3.0


def test_later_pages_count_since_the_one_before() -> None:
    before = sample(10.0, topic("t", 5, 7), groups=[group("g", (3, 5), (-1, 4))])
    now = sample(
        12.0, topic("t", 9, 7), topic("new", 50, tps=0.25), groups=[group("g", (5, 5), (2, 4))]
    )
    shown = view(now, before)
    assert {row["topic"]: row["in_per_s"] for row in shown["topics"]} == {"t": 2.0, "new": 0.25}
    assert shown["groups"][0]["out_per_s"] == 2.0


def test_offsets_that_went_back_are_no_rate_below_zero() -> None:
    before = sample(0.0, topic("t", 9), groups=[group("g", (9, 9))])
    shown = view(sample(1.0, topic("t", 0), groups=[group("g", (0, 9))]), before)
    assert shown["topics"][0]["in_per_s"] == 0.0
    assert shown["groups"][0]["out_per_s"] == 0.0


def test_busiest_and_those_furthest_behind_come_first() -> None:
    topics = [topic(f"t{n:02}", 1, tps=float(n % 3)) for n in range(5)]
    groups = [group(f"g{n}", (0, n % 2)) for n in range(4)]
    shown = view(sample(0.0, *topics, groups=groups), None)
    assert [row["topic"] for row in shown["topics"]] == ["t02", "t01", "t04", "t00", "t03"]
    assert [row["group"] for row in shown["groups"]] == ["g1", "g3", "g0", "g2"]


@pytest.mark.parametrize("height", [5, 12, 24, 60])
@pytest.mark.parametrize(("topics", "groups"), [(0, 0), (3, 90), (90, 3), (90, 90)])
def test_page_fits(height: int, topics: int, groups: int) -> None:
    shown = view(
        sample(
            0.0,
            *(topic(f"t{n}", 1) for n in range(topics)),
            groups=[group(f"g{n}", (0, 1)) for n in range(groups)],
        ),
        None,
    )
    lines = page(shown, "title", height)
    assert lines[0] == "title"
    assert len(lines) <= height
    if height >= 24:
        text = "\n".join(lines)
        assert ("more" in text) is (topics + groups > height)
        assert "\nt" in text or not topics
        assert "\ng" in text or not groups


def test_page_without_an_end_has_twenty_rows_a_table() -> None:
    shown = view(sample(0.0, *(topic(f"t{n}", 1) for n in range(25))), None)
    lines = page(shown, "title", None)
    assert len([line for line in lines if line.startswith("t") and line != "title"]) == 20
    assert "... 5 more" in lines
    assert lines[-1] == "no groups"


class Cluster:
    """Answers at once; a topic is gone, and a group does not answer."""

    def __init__(self) -> None:
        self.most = self.asked = 0

    async def brokers(self) -> list[BrokerStatus]:
        away = BrokerStatus(cluster="c", broker="b", broker_id=0, address="h:2", error="silent")
        return [BROKER, away]

    async def group_names(self) -> list[str]:
        return ["g", "silent"]

    async def topics(self) -> list[str]:
        return [f"t{n}" for n in range(100)]

    async def topic_status(self, name: str) -> TopicStatus:
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(0)
        self.asked -= 1
        if name == "t7":
            raise TopicNotExistError(17, "gone")
        return topic(name, 1)

    async def group_lag(self, name: str) -> GroupLag:
        if name == "silent":
            raise RequestTimeoutError("no answer")
        return group(name, (0, 1))[0]

    async def group_members(self, name: str) -> list[object]:
        return [name]


async def test_top_omits_silent_parts_and_limits_concurrent_requests() -> None:
    cluster = Cluster()
    found = await take(cast("Admin", cluster))
    assert len(found.topics) == 99
    assert [(each.group, members) for each, members in found.groups] == [("g", 1)]
    assert [each.error for each in found.brokers] == ["", "silent"]
    assert 1 < cluster.most <= 32


async def test_top_whose_reader_is_gone_ends_between_two_pages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has_left = asyncio.Event()

    @contextlib.asynccontextmanager
    async def connect(namesrv: str) -> AsyncIterator[Cluster]:
        yield Cluster()

    class Pages(Screen):
        def draw(self, shown: View, error: str = "") -> None:
            super().draw(shown, error)
            has_left.set()

    async def until_reader_is_gone() -> None:
        await has_left.wait()

    monkeypatch.setattr(rocketpy.admin, "connect", connect)
    monkeypatch.setattr(top, "until_reader_is_gone", until_reader_is_gone)
    with Pages("h:1", "json", is_live=True) as screen:
        async with asyncio.timeout(10):
            assert await top._watch(screen, "h:1", 3600.0) == ()
    assert len(capsys.readouterr().out.splitlines()) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_is_drawn_in_place_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "10")
    with Screen("h:1", "table", is_live=True) as screen:
        for _ in range(2):
            screen.draw(view(sample(0.0, topic("t", 1)), None), "away\x1b[31m")
    text = out.getvalue()
    assert text.startswith("\x1b[?1049h")
    assert text.endswith("\x1b[?1049l")
    assert text.count("\x1b[H") == 2
    assert "\x1b[31m" not in text
    drawn = text.split("\x1b[H")[1].split("\x1b[K\n")
    assert len(drawn) <= 10
    assert max(len(line.partition("\x1b[K")[0]) for line in drawn) == 30
