"""The second part of the demo, on flights of the test's own."""

import csv
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(__file__).parents[3] / "examples" / "flights_features.py"


ONE_WRONG = """
import sys
sys.path.insert(0, {directory!r})
import flights_features

async def loses_one(_world):
    return [flights_features.Outcome("a part", "messages", 2, 1)]

flights_features.PARTS = (loses_one,)
sys.exit(flights_features.main())
"""


def some_flights(path: Path, rows: int) -> Path:
    """Write a file of flights."""
    rng = random.Random(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["carrier", "tailnum", "dep_delay", "air_time"])
        for number in range(rows):
            carrier = rng.choice(["UA", "AA", "FL"])
            delay = "NA" if number % 17 == 0 else rng.randrange(-10, 200)
            writer.writerow([carrier, f"N{rng.randrange(30)}", delay, rng.randrange(30, 200)])
    return path


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=240, check=False
    )


def test_every_capability_shows_what_it_must(tmp_path: Path) -> None:
    flights = some_flights(tmp_path / "flights.csv", 300)
    done = run(str(PROGRAM), "--flights", str(flights), "--rows", "300")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all is well" in done.stdout
    assert "WRONG" not in done.stdout


def test_unexpected_results_are_shown_and_exit_code_is_1(tmp_path: Path) -> None:
    flights = some_flights(tmp_path / "flights.csv", 20)
    program = ONE_WRONG.format(directory=str(PROGRAM.parent))
    done = run("-c", program, "--flights", str(flights), "--rows", "20")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout
    assert "something is wrong" in done.stdout
