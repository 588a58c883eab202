"""The map in docs/ARCHITECTURE.md is the way a message really takes, step by step.

One message is sent through a simulated cluster (SYNC_FLUSH, a consumer waiting) while every call
is noted. The functions that the map numbers are called in its order; the modules beside the way
are entered too, and no other module of client, broker, store or remoting is.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.testing.sim_cluster import SimCluster, run_simulation

PAGE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"
SECTION = re.compile(r"## One sent message.*?\n(?=## )", re.DOTALL)
STEP = re.compile(r"^ {4} ?(\d+)  (\S+\.py) +([\w.]+)  ", re.MULTILINE)
BESIDE = re.compile(r"`([a-z_/]+\.py)`")
LAYERS = ("client/", "broker/", "store/", "remoting/")


class Step(NamedTuple):
    """Line of the map."""

    number: int
    module: str
    function: str


@cache
def section() -> str:
    found = SECTION.search(PAGE.read_text())
    assert found is not None
    return found[0]


@cache
def steps() -> list[Step]:
    return [Step(int(number), *rest) for number, *rest in STEP.findall(section())]


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


def test_the_steps_happen_in_the_order_of_the_map() -> None:
    assert [step.number for step in steps()] == list(range(1, len(steps()) + 1))
    assert len(steps()) >= 20

    at = 0
    for step in steps():
        later = [i for i, call in enumerate(calls()[at:], at) if call == step[1:]]
        assert later, f"step {step} does not come after the one before it"
        at = later[0] + 1


def test_the_map_names_every_module_on_the_way_and_no_other() -> None:
    named = {step.module for step in steps()} | set(BESIDE.findall(section()))
    entered = {module for module, _ in calls()}

    assert {each for each in entered if each.startswith(LAYERS)} - named == set()
    assert {each for each in named if each.startswith(LAYERS)} - entered == set()


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.module)
def test_a_module_says_which_step_it_is(step: Step) -> None:
    docstring = import_module(
        "rocketpy." + step.module.removesuffix(".py").replace("/", ".")
    ).__doc__
    numbers = [each.number for each in steps() if each.module == step.module]

    assert docstring is not None
    said = re.search(r"Steps? ([\d, and]+) of a message's life", docstring)
    assert said is not None
    assert [int(each) for each in re.findall(r"\d+", said[1])] == numbers
