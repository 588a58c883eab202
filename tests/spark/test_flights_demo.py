"""Demo `make demo-spark` with a few flights: killed, restarted, counted, drawn."""

import csv
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "flights_spark.py"
FLIGHTS = (
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier "
    "flight tailnum origin dest air_time distance hour minute time_hour"
)
WEATHER = (
    "origin year month day hour temp dewp humid wind_dir wind_speed wind_gust precip pressure "
    "visib time_hour"
)
PLANES = "tailnum year type manufacturer model engines seats speed engine"
ROWS = 2_500
CHARTS = ("carrier.png", "hour.png", "weather.png", "age.png")


def write(path: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        writer.writerows(rows)


def write_tables(folder: Path) -> None:
    """Write flights of two days by two carriers, hourly weather, and planes."""
    rng = random.Random(1)
    flights, weather = [], []
    for day in (1, 2):
        for hour in range(5, 23):
            at = f"2013-01-0{day}T{hour:02d}:00:00Z"
            weather.append(["JFK", 2013, 1, day, hour, 40, 30, 60, 0, rng.randrange(30), "NA",
                            rng.choice([0, 0.05, 0.2]), 1010, rng.choice([1, 10]), at])  # fmt: skip
    for number in range(ROWS):
        day, hour = number * 2 // ROWS + 1, number % 18 + 5
        delay = "NA" if number % 50 == 0 else rng.randrange(-10, 120)
        flights.append([2013, 1, day, 517, 515, delay, 830, 819, 11, rng.choice(["UA", "AA"]),
                        number, f"N{number % 40}", "JFK", "IAH", 227, 1400, hour, 15,
                        f"2013-01-0{day}T{hour:02d}:00:00Z"])  # fmt: skip
    write(folder / "flights.csv", FLIGHTS, flights)
    write(folder / "weather.csv", WEATHER, weather)
    planes = ([f"N{n}", 1980 + n, "wing", "X", "Y", 2, 150, "NA", "fan"] for n in range(30))
    write(folder / "planes.csv", PLANES, planes)
    write(folder / "airlines.csv", "carrier name", [("UA", "United"), ("AA", "American")])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_flights_demo_completes(tmp_path: Path) -> None:
    write_tables(tmp_path)
    report = tmp_path / "report"
    command = [sys.executable, str(PROGRAM), "--rows", str(ROWS), "--to", str(report)]
    command += ["--flights", str(tmp_path / "flights.csv"), "--tables", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    facts = {line.rpartition("  ")[0].strip(): line.split()[-1] for line in lines}
    assert facts["messages in the store"] == facts["rows in Parquet"] == f"{ROWS:,}"
    assert (facts["gaps"], facts["duplicates"]) == ("0", "0")
    assert facts["executors of the analysis"] == "2"
    killed_at = int(facts["rows when the stream was killed"].replace(",", ""))
    assert killed_at >= ROWS * 2 // 5
    assert "killed with SIGKILL" in done.stdout
    assert "all is well" in done.stdout
    for name in CHARTS:
        assert (report / name).read_bytes().startswith(b"\x89PNG")
    page = (report / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(CHARTS)
    assert "United" in page
    assert "American" in page
