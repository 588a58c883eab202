"""The path of a message in docs/ARCHITECTURE.md is the path that a message takes.

One message is sent through a simulated cluster (SYNC_FLUSH, a consumer waiting) while every call
is noted. The functions that the page lists are called in its order.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.testing.sim_cluster import SimCluster, run_simulation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
STEP = re.compile(r"^ {4} ?(\d+)  (\S+\.py) +([\w.]+)(?:  |$)", re.MULTILINE)
NAMED = re.compile(r"`((?:[a-z_0-9]+/)+(?:\w+\.pyx?)?)`")


class Step(NamedTuple):
    """Line of the map."""

    number: int
    module: str
    function: str


@cache
def steps() -> list[Step]:
    return [Step(int(number), *rest) for number, *rest in STEP.findall(section("The path"))]


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}")[2].partition("\n## ")[0]


def drawn_folders() -> set[str]:
    """Folders of the tree, as `store/read`: two spaces of indentation a level below the first."""
    found = set()
    parents: list[str] = []
    for line in section("The folder tree").splitlines():
        shown = re.match(r"^ {4}( *)((?:\w+/ *)+)", line)
        if shown is None:
            continue
        parents = parents[: len(shown[1]) // 2]
        names = [name.strip("/ ") for name in shown[2].split()]
        found |= {"/".join([*parents, name]) for name in names}
        parents.append(names[0])
    return found


class CallLog:
    """Notes (module, function) of each call into the package, the test kit's left out."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if module.startswith("rocketpy.") and not module.startswith("rocketpy.testing"):
            path = module.removeprefix("rocketpy.").replace(".", "/") + ".py"
            self.calls.append((path, frame.f_code.co_qualname))


async def live(cluster: SimCluster, note: Callable[[], CallLog]) -> list[tuple[str, str]]:
    """Send one message to a consumer that waits for it; return the calls that made."""
    cluster.create_topic("orders")
    handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    counter = cluster.brokers[0].broker.parts.message_counter

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"the one":
            handled.set_result(None)

    async with cluster.client() as client:
        producer = client.producer()
        await producer.send("orders", b"route and connection are known afterwards")
        async with client.consumer("orders", group="readers", handler=handler):
            await asyncio.sleep(9.3)  # its pulls are suspended, and nothing periodic is due
            with note() as log:
                await producer.send("orders", b"the one")
                await handled
                # Counts are handed on to the statistics once a second, and this is not the moment.
                counter.step(0)
            return log.calls


@cache
def calls() -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCKETPY_PURE", "1")  # the compiled path does many steps in one call
        return run_simulation(
            lambda cluster: live(cluster, CallLog), properties={"flushDiskType": "SYNC_FLUSH"}
        )


def test_path_of_the_page_is_the_order_of_the_calls() -> None:
    assert [step.number for step in steps()] == list(range(1, len(steps()) + 1))
    assert len(steps()) >= 25

    at = 0
    for step in steps():
        later = [i for i, call in enumerate(calls()[at:], at) if call == step[1:]]
        assert later, f"{step} is not called after the step before it"
        at = later[0] + 1


def test_tree_of_the_page_has_every_folder() -> None:
    package = ROOT / "rocketpy"
    folders = {
        str(path.parent.relative_to(package)) for path in package.rglob("*/*/__init__.py")
    } - {"."}
    assert {each for each in drawn_folders() if "/" in each} == folders


def test_files_and_folders_that_the_page_names_exist() -> None:
    named = set(NAMED.findall(PAGE))
    assert len(named) > 20
    missing = {
        each for each in named if not any((p / each).exists() for p in (ROOT, ROOT / "rocketpy"))
    }
    assert missing == set()
