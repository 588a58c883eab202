"""Tables of measurements in the documents are what `bench.documents` makes of their runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.chart import CHART, run_of
from bench.chart import draw as draw_chart
from bench.documents import DOCUMENTS, blocks, draw, kind_of, write
from bench.processes import ROOT
from bench.report import RESULTS, Run, as_data
from bench.workloads import Goal, Round, Workload


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tables_say_what_their_runs_say(document: Path) -> None:
    found = blocks(document.read_text())
    assert found
    for kind, names, inside in found:
        if names:
            files = [RESULTS / name for name in names]
            assert inside == draw(kind, files, document), f"python -m bench.documents {names}"


def test_chart_of_the_readme_shows_the_run_of_its_table() -> None:
    chart = CHART.read_text()
    name = run_of(chart)
    assert chart == draw_chart(json.loads((RESULTS / name).read_text()), name), "bench.chart"
    tables = {kind: names for kind, names, _ in blocks((ROOT / "README.md").read_text())}
    assert tables["short"] == [name]


def measured(per_s: float, cpu_us: float, p99_us: float) -> Round:
    return Round(per_s, cpu_us, p99_us / 4, p99_us, 0, 1000, up_s=60.0)


def run(row: str, rate: float) -> dict[str, Any]:
    """A run of one row as it is stored: ours at `rate` times Apache's."""
    workload = Workload(row, f"load {row}", (), goal=Goal(1.5, 0.4, 1.0), is_latency=row == "e2e")
    sides = {"rocketpy": rate, "pure": rate / 2, "apache": 1.0}
    rounds = {side: [measured(1000 * by, 10 / by, 400 / by)] for side, by in sides.items()}
    starts = {side: [0.5, 0.25, 0.3] for side in sides}
    idle = dict.fromkeys(sides, 25.0)
    return as_data(Run([workload], {workload.name: rounds}, starts=starts, idle_mib=idle))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- bench: table -->\nold\n<!-- end of bench -->\nafter\n")
    return path


def stored(directory: Path, name: str, data: dict[str, Any]) -> Path:
    path = directory / name
    path.write_text(json.dumps(data))
    return path


def test_ratios_goals_and_the_run_are_written(tmp_path: Path, document: Path) -> None:
    file = stored(tmp_path, "2026-01-01-0000-abc.json", run("async", 2.0))
    write([file], [document])
    text = document.read_text()
    assert text.startswith("before\n<!-- bench: table 2026-01-01-0000-abc.json -->\n| load |")
    assert text.endswith("<!-- end of bench -->\nafter\n")
    assert "| load async | 2,000 | 1,000 | **2.00** (1.5) | 5.0 | 10.0 | 0.50 (0.4) |" in text
    assert "**1.00** (1) | 1.00 |" in text, "pure Python beside Apache"
    assert "| ready after start, s (0.3) | 0.30 | 0.30 | 0.30 |" in text
    assert "bench/results/2026-01-01-0000-abc.md" in text
    written = text
    write([file], [document])
    assert document.read_text() == written, "the same again changes nothing"


def test_rows_of_a_later_run_take_the_place_of_the_older_ones(
    tmp_path: Path, document: Path
) -> None:
    first = stored(tmp_path, "2026-01-01-0000-abc.json", run("async", 2.0))
    again = stored(tmp_path, "2026-01-02-0000-abc.json", run("async", 3.0))
    other = stored(tmp_path, "2026-01-03-0000-abc.json", run("e2e", 2.0))
    write([other, again, first], [document])
    text = document.read_text()
    assert "**3.00** (1.5)" in text
    assert "**2.00** (1.5)" not in text
    assert "**0.50** (1.5) / **0.50** (1.5) of its time" in text, "latencies: less is better"


def test_document_without_a_block_of_that_kind_stays(tmp_path: Path, document: Path) -> None:
    file = stored(tmp_path, "2026-01-01-0000-abc-features.json", run("sql", 2.0))
    before = document.read_text()
    assert kind_of(file) == "features"
    assert write([file], [document]) == []
    assert document.read_text() == before
