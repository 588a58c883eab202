"""The second part of the demo, on flights of the test's own."""

import csv
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(__file__).parents[3] / "examples" / "flights_features.py"


def test_every_capability_shows_what_it_must(tmp_path: Path) -> None:
    rng = random.Random(1)
    flights = tmp_path / "flights.csv"
    with flights.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["carrier", "tailnum", "dep_delay", "air_time"])
        for number in range(300):
            carrier = rng.choice(["UA", "AA", "FL"])
            delay = "NA" if number % 17 == 0 else rng.randrange(-10, 200)
            writer.writerow([carrier, f"N{rng.randrange(30)}", delay, rng.randrange(30, 200)])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--flights", str(flights), "--rows", "300"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all is well" in done.stdout
    assert "WRONG" not in done.stdout
