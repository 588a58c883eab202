"""Kills Spark's driver and executors at random times while a topic is filled (`kill -9`).

    python -m tests.spark.kills 20                 # 20 kills
    python -m tests.spark.kills 20 --minutes 9     # stop after 9 minutes
    python -m tests.spark.kills 20 --seed 7        # other times and victims
    python -m tests.spark.kills 20 --job archive   # `rocketpy spark archive` instead of the example
    python -m tests.spark.kills 20 --broker apache # Apache's broker instead of two of RocketPy

The executors are separate processes (`local-cluster[2,1,1024]`). The output of the job is read
without Spark, by pyarrow: the files in the log of the Parquet sink, or all files of the archive. It
must be the multiset of (broker, queue, offset, crc of the body) of the store.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow.dataset as ds
import pyarrow.parquet as pq

import rocketpy.admin.sync
import rocketpy.sync
from rocketpy.store import to_arrow
from rocketpy.testing.cluster import ClusterThread
from tests.peer.apache import Apache
from tests.spark.fill import Row, fill, stored
from tests.spark.local_spark import ARCHIVE, Program, archive_files, family, gave_up, make_home

TOPIC = "flights"
QUEUES = 2
MASTER = "local-cluster[2,1,1024]"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_CHUNK = 20
_COLUMNS = ["brokerName", "queueId", "queueOffset", "body"]
_APACHE = "apache-a"
_FEED_PAUSE_S = 0.1
_LONGEST_S = 6.0
_START_S = 900.0
_FINISH_S = 1800.0


class Topic(Protocol):
    """Topic that is filled and read.

    Attributes:
        namesrv: of its brokers.
    """

    namesrv: str

    def fill(self, first: int) -> None:
        """Store the next messages."""
        ...

    def rows(self) -> Counter[Row]:
        """Return the messages of the brokers."""
        ...


class OurTopic:
    """Topic of two RocketPy brokers in this process."""

    def __init__(self, cluster: ClusterThread) -> None:
        self._cluster = cluster
        self.namesrv = cluster.namesrv

    def fill(self, first: int) -> None:
        """Store messages."""
        fill(self._cluster, TOPIC, queues=QUEUES, count=_CHUNK, first=first, body=_body)

    def rows(self) -> Counter[Row]:
        """Read the stores."""
        return stored(self._cluster, TOPIC)


class ApacheTopic:
    """Topic of Apache's broker."""

    def __init__(self, home: Path, namesrv: str, client: rocketpy.sync.Client) -> None:
        self._home = home
        self._producer = client.producer()
        self.namesrv = namesrv

    def fill(self, first: int) -> None:
        """Send messages."""
        for number in range(first, first + _CHUNK):
            self._producer.send(TOPIC, _body(number))

    def rows(self) -> Counter[Row]:
        """Read its store directory, while it runs."""
        found = to_arrow(self._home / "store", topics=TOPIC, broker_name=_APACHE, columns=_COLUMNS)
        return Counter(map(_row, found.read_all().to_pylist()))


@contextmanager
def running(directory: Path, *, is_apache: bool) -> Iterator[Topic]:
    """Run brokers with an empty topic."""
    if not is_apache:
        with ClusterThread(directory, brokers=2) as cluster:
            cluster.create_topic(TOPIC, QUEUES)
            yield OurTopic(cluster)
        return
    with Apache(directory).borrowed() as servers:
        with rocketpy.admin.sync.connect(servers.namesrv) as admin:
            admin.create_topic(TOPIC, QUEUES)
        with rocketpy.sync.connect(servers.namesrv, group="feed") as client:
            yield ApacheTopic(directory, servers.namesrv, client)


class Feed:
    """Thread that fills the topic until it is stopped."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def _run(self) -> None:
        while not self._is_over.wait(_FEED_PAUSE_S):
            self._topic.fill(self.count)
            self.count += _CHUNK

    def __enter__(self) -> "Feed":  # noqa: PYI034
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def _body(number: int) -> bytes:
    return f"body-{number}".encode()


class Run:
    """Job that is killed and restarted.

    Args:
        directory: for all files.
        namesrv: of the brokers with the topic.
        rng: chooses times and victims.
        is_archive: run the archive job instead of the example.
    """

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        *,
        rng: random.Random,
        is_archive: bool = False,
    ) -> None:
        self._directory = directory
        self._namesrv = namesrv
        self._rng = rng
        self._is_archive = is_archive
        self._home = make_home(directory)
        self._lives = 0
        self.killed: Counter[str] = Counter()

    def start(self, *, once: bool = False) -> Program:
        """Start the job; with `once` it ends after the current messages."""
        out = str(self._directory / "out")
        if self._is_archive:
            job = ["-m", "rocketpy.spark.jobs.archive", TOPIC, "-n", self._namesrv]
            job += ["--to", out, "--compact-every", "3"]
            job += [] if once else ["--batch-rows", "1000", "--every", "1"]
        else:
            job = [str(ARCHIVE), self._namesrv, TOPIC, out]
            job += [] if once else ["--batch-rows", "1000", "--forever"]
        job += ["--master", MASTER]
        self._lives += 1
        log = self._directory / f"life-{self._lives}.log"
        return Program([sys.executable, *job], self._home, log)

    def kill_some(self, victims: Iterable[str]) -> None:
        """Kill a `driver` or an `executor` each time; the job restarts or continues."""
        job: Program | None = None
        batches = 0
        for victim in victims:
            while job is None or not self._is_busy(job, victim, batches):
                job, batches = self.start(), 0
            time.sleep(self._rng.uniform(0, _LONGEST_S))
            batches = job.text.count("batch ")
            if victim == "executor":
                os.kill(self._rng.choice(some_executors(job)), signal.SIGKILL)
            else:
                self._kill_driver(job)
                job = None
            self.killed[victim] += 1
            life = f"{batches} batches into life {self._lives}"
            print(f"kill {self.killed.total()}: {victim}, {life}", flush=True)
        if job is not None:
            self._kill_driver(job)

    def _is_busy(self, job: Program, victim: str, batches: int) -> bool:
        """Wait until there is a victim; return False if Spark gave up and the job ended."""
        try:
            job.wait_for("started|Spark started", limit_s=_START_S)
            if victim == "executor" or self._rng.random() < 0.8:  # or during a start or a recovery
                job.wait_for("batch [0-9]", count=batches + 1, limit_s=_START_S)
        except AssertionError:
            if job.is_running or not gave_up(job.text):
                raise
            return False
        return True

    def finish(self) -> None:
        """Run the job until it has read all messages."""
        while True:
            with self.start(once=True) as job:
                code = job.wait(_FINISH_S)
            if code == 0:
                return
            assert gave_up(job.text), job.text[-4000:]

    def written(self) -> Counter[Row]:
        """Return the messages that a reader other than Spark finds."""
        out = self._directory / "out"
        if not self._is_archive:
            return written(out / "parquet")
        rows = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=_COLUMNS)
        return Counter(map(_row, rows.to_pylist()))

    @staticmethod
    def _kill_driver(job: Program) -> None:
        """Kill the driver; its executors notice later, and may still write."""
        whole = job.family()
        left = {pid for each in executors_of(job) for pid in family(each)}
        for pid in whole.keys() - left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait(60)


def executors_of(job: Program) -> list[int]:
    """Return the pids of a job's executors."""
    return [pid for pid, line in job.family().items() if _EXECUTOR in line]


def some_executors(job: Program) -> list[int]:
    """Wait for executors, and return their pids."""
    deadline = time.monotonic() + _START_S
    while not (found := executors_of(job)):
        assert time.monotonic() < deadline, "no executor"
        time.sleep(0.05)
    return found


def written(directory: Path) -> Counter[Row]:
    """Return the rows that the Parquet sink has committed."""
    found: Counter[Row] = Counter()
    for path in archive_files(directory):
        table = pq.read_table(path, columns=_COLUMNS, partitioning=None)
        found.update(map(_row, table.to_pylist()))
    return found


def _row(row: dict[str, Any]) -> Row:
    return row["brokerName"], row["queueId"], row["queueOffset"], zlib.crc32(row["body"])


def check(wanted: Counter[Row], found: Counter[Row]) -> str:
    """Check that the files have exactly the messages of the store."""
    missing, extra = wanted - found, found - wanted
    assert not missing, f"{len(missing)} missing"
    assert not extra, f"{len(extra)} too many"
    return f"{wanted.total()} rows, 0 missing, 0 twice"


def random_victims(count: int, rng: random.Random, minutes: float) -> Iterator[str]:
    """Yield victims up to a number or a time limit; few drivers, which restart slowly."""
    deadline = time.monotonic() + minutes * 60
    for _ in range(count):
        if time.monotonic() > deadline:
            return
        yield "executor" if rng.random() < 0.6 else "driver"


def run(
    victims: Iterable[str],
    directory: Path,
    *,
    seed: str = "1",
    is_archive: bool = False,
    is_apache: bool = False,
) -> str:
    """Fill, kill, finish and compare; return the result in words.

    Raises:
        AssertionError: rows are missing or duplicated.
    """
    with running(directory / "broker", is_apache=is_apache) as topic:
        lives = Run(directory, topic.namesrv, rng=random.Random(seed), is_archive=is_archive)
        with Feed(topic):
            lives.kill_some(victims)
        lives.finish()
        found = check(topic.rows(), lives.written())
        killed = ", ".join(f"{count} {name}" for name, count in sorted(lives.killed.items()))
        return f"{killed} killed: {found}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--job", choices=["example", "archive"], default="example")
    parser.add_argument("--broker", choices=["ours", "apache"], default="ours")
    options = parser.parse_args()
    victims = random_victims(options.kills, random.Random(f"victims{options.seed}"),
                             options.minutes)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="rocketpy-kills-") as scratch:
        is_archive, is_apache = options.job == "archive", options.broker == "apache"
        print(run(victims, Path(scratch), seed=options.seed, is_archive=is_archive,
                  is_apache=is_apache))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
