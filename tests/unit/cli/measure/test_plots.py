import xml.etree.ElementTree as ET

import pytest

from rocketpy.cli.measure.figures import Figures
from rocketpy.cli.measure.plots import bars, latency_text, page


@pytest.fixture
def figures() -> Figures:
    now_s = iter(range(100))
    found = Figures(lambda: float(next(now_s)))
    for time_us, count in ((100, 10), (900, 30), (70_000, 1)):
        found.add(time_us, 100 * count, count)
    return found


def test_bars_have_lengths_by_their_values(figures: Figures) -> None:
    lines = bars(figures).splitlines()
    by_name = {line.split("#")[0].strip(): line.count("#") for line in lines if "#" in line}
    assert by_name["1.02 ms"] == 40
    assert by_name["128 us"] == 13
    assert by_name["131 ms"] == 1, "what is rare can still be seen"
    assert "messages a second, by time" in lines
    assert next(line for line in lines if line.strip().startswith("256 us")).endswith(" 0")


def test_bars_are_plain_characters(figures: Figures) -> None:
    assert bars(figures).isascii()


def test_bars_of_nothing() -> None:
    assert "#" not in bars(Figures(lambda: 0.0))


def test_page_stands_alone(figures: Figures) -> None:
    text = page("a <b> & c", [({"mode": "async", "messages": 41, "p50_ms": 0.9}, figures)])
    root = ET.fromstring(text.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', ""))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.findtext("body/h1") == "a <b> & c"
    assert [cell.text for cell in root.iter("td")] == ["async", "41", "0.9"]
    line, columns = root.iter(f"{svg}svg")
    polyline = line.find(f"{svg}polyline")
    assert polyline is not None
    points = [tuple(map(float, each.split(","))) for each in polyline.attrib["points"].split()]
    assert all(64 <= x <= 632 and 22 <= y <= 192 for x, y in points)
    assert len(list(columns.iter(f"{svg}rect"))) == len(figures.latencies.spread())
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_page_of_a_run_without_messages() -> None:
    assert "</html>" in page("nothing", [({"messages": 0}, Figures(lambda: 0.0))])


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0, "0 us"), (999, "999 us"), (1_000, "1 ms"), (65_536, "65.5 ms"), (16_777_216, "16.8 s")],
)
def test_times_are_short(time_us: int, text: str) -> None:
    assert latency_text(time_us) == text
