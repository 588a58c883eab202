"""Flame graphs: stacks become a picture whose widths are their shares."""

import asyncio
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from bench.flame import Stacks, sampled, svg, widest

SVG = "{http://www.w3.org/2000/svg}"
STACKS: Stacks = Counter(
    {
        ("serve (a.py)", "read (b.py)", "x = a < b"): 3,
        ("serve (a.py)", "write (b.py)"): 1,
    }
)


def widths(text: str) -> dict[str, float]:
    """Width of each frame by its tooltip."""
    root = ET.fromstring(text)
    found = {}
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        assert box is not None
        found[group.findtext(f"{SVG}title") or ""] = float(box.attrib["width"])
    return found


def test_frame_is_as_wide_as_its_share() -> None:
    found = widths(svg(STACKS, "a <picture>", "about"))
    assert found["all: 100.0 %"] == pytest.approx(1200, abs=1)
    assert found["serve (a.py): 100.0 %"] == pytest.approx(1200, abs=1)
    assert found["read (b.py): 75.0 %"] == pytest.approx(900, abs=1)
    assert found["x = a < b: 75.0 %"] == pytest.approx(900, abs=1)
    assert found["write (b.py): 25.0 %"] == pytest.approx(300, abs=1)


def test_module_has_one_colour() -> None:
    root = ET.fromstring(svg(STACKS, "title", "about"))
    colours = {
        (group.findtext(f"{SVG}title") or "").split(":")[0]: group.find(f"{SVG}rect")
        for group in root.iter(f"{SVG}g")
    }
    fill = {name: box.attrib["fill"] for name, box in colours.items() if box is not None}
    assert fill["read (b.py)"] == fill["write (b.py)"]


def test_nothing_was_sampled() -> None:
    assert widths(svg(Counter(), "title", "about")) == {}


def test_widest_lines_come_first() -> None:
    assert widest(STACKS, 1) == [("x = a < b < read (b.py)", 0.75)]


def test_stacks_begin_below_the_named_function() -> None:
    def below() -> None:
        while not stacks:
            sum(range(1000))

    async def feed() -> None:
        below()

    stacks: Stacks = Counter()
    with sampled(stacks, "feed"):
        asyncio.run(feed())
    assert {stack[0] for stack in stacks} == {"below (test_flame.py)"}
