"""The table of what a message costs a client, and that each client has the rows it is said to."""

import ast
from pathlib import Path

import pytest

import bench.sdk
from bench.sdk import ours
from bench.sdk.report import about, as_rounds, table
from bench.sdk.rows import KAFKA, NATS, OURS, ROWS, Measured


def measured(*costs_us: float) -> list[Measured]:
    return [Measured(1000, cost_us, 2 * cost_us) for cost_us in costs_us]


def test_medians_goals_and_gaps_stand_in_the_table() -> None:
    rounds = {
        "awaited": {KAFKA: measured(150, 170, 160), NATS: measured(90), OURS: measured(64)},
        "in_flight": {NATS: measured(20), OURS: measured(19)},
    }
    lines = table(rounds, {KAFKA: "no jars"}).splitlines()
    assert lines[2:4] == [
        "| one awaited send | 160.0 | 90.0 | **64.0** | 65 |",
        "| 256 in flight, each its own request | - | 20.0 | 19.0 | 18 |",
    ]
    assert lines[-1] == "Not measured here: aiokafka (no jars)."


def test_stored_sdk_results_are_read_back() -> None:
    stored = {"rounds": {"iterate": {OURS: [{"messages": 5, "cpu_us": 1.5, "wall_us": 2.0}]}}}
    assert as_rounds(stored) == {"iterate": {OURS: [Measured(5, 1.5, 2.0)]}}


def test_sdk_report_names_the_source_of_its_numbers() -> None:
    said = about({"rounds": 3, "load": "0.1"}, {KAFKA: "0.14.0"}, "abc")
    assert "medians of 3 rounds" in said
    assert said.endswith("load of the machine before 0.1; commit abc; aiokafka 0.14.0.")


def test_ours_has_every_row() -> None:
    assert set(ours.rows()) == {row.key for row in ROWS} | {"fill"}


@pytest.mark.parametrize(("peer", "module"), [(KAFKA, "aiokafka_client"), (NATS, "nats_client")])
def test_peer_has_the_rows_that_name_it(peer: str, module: str) -> None:
    # Their packages need not be installed where tests run.
    tree = ast.parse((Path(bench.sdk.__file__).parent / f"{module}.py").read_text())
    rows = {each.name for each in tree.body if isinstance(each, ast.AsyncFunctionDef)}
    wanted = {row.key for row in ROWS if peer in row.beside} | {"fill"}
    assert {name for name in rows if not name.startswith("_")} == wanted
