"""Kafka broker and Spark's connector for it, from Maven Central, as baseline of the pipeline.

`kafka.xml` and `kafka_connector.xml` name the artifacts. The connector has no release for every
release of Spark: that of 4.2 runs in 4.3. `KAFKA_CACHE` (default ~/.cache/rocketpy-kafka) keeps the
jars.
"""

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.spark import QUEUES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HERE = Path(__file__).parent
START_S = 60
HEAP = "1g"


class NotResolvedError(Exception):
    """The jars are unavailable, with the reason."""


class Jars(NamedTuple):
    """Resolved jars.

    Attributes:
        broker: directory with the broker and its dependencies.
        connector: jars with which Spark reads and writes topics.
    """

    broker: Path
    connector: Sequence[Path]


@dataclass
class Broker:
    """A running broker.

    Attributes:
        address: `host:port`.
        filled: topics that were filled.
    """

    address: str
    filled: set[str] = field(default_factory=set)


def resolve() -> Jars:
    """Return the jars; Maven fetches missing ones.

    Raises:
        NotResolvedError: Maven is missing, or does not find them.
    """
    cache = Path(os.environ.get("KAFKA_CACHE", "~/.cache/rocketpy-kafka")).expanduser()
    return Jars(
        _fetched("kafka.xml", cache / "broker"),
        sorted(_fetched("kafka_connector.xml", cache / "connector").glob("*.jar")),
    )


def _fetched(pom: str, into: Path) -> Path:
    done = into / ".fetched"
    if done.exists() and done.read_text() == (HERE / pom).read_text():
        return into
    if shutil.which("mvn") is None:
        raise NotResolvedError("Kafka's jars need Maven (mvn), which is not installed")
    shutil.rmtree(into, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(HERE / pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        lines = [line for line in ran.stdout.splitlines() if "ERROR" in line] or ["no output"]
        raise NotResolvedError(f"Maven does not resolve {pom}: {lines[0]}")
    done.write_text((HERE / pom).read_text())
    return into


@contextmanager
def running(jars: Jars, home: Path) -> Iterator[Broker]:
    """Run a broker on free loopback ports, with its topics below a directory."""
    home.mkdir(parents=True)
    port, controller = _free_port(), _free_port()
    config = home / "server.properties"
    config.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={home / 'logs'}\n"
        "offsets.topic.replication.factor=1\n"
        f"num.partitions={QUEUES}\n"
    )
    java = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", f"{jars.broker}/*"]
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    made = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
    subprocess.run(made, check=True, capture_output=True)
    with (home / "broker.out").open("wb") as output:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(config)], stdout=output, stderr=subprocess.STDOUT, cwd=home
        )
    try:
        _wait(process, port, home / "broker.out")
        yield Broker(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fill(broker: Broker, topic: str, rows: "DataFrame") -> None:
    """Write messages to a topic, each to the partition of its queue, in their order."""
    columns = ["keys AS key", "body AS value", "queueId AS partition"]
    writer = rows.selectExpr(*columns).write.format("kafka").option("topic", topic)
    writer.option("kafka.delivery.timeout.ms", 600_000)
    writer.option("kafka.bootstrap.servers", broker.address).save()
    broker.filled.add(topic)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                tail = log.read_text()[-2000:]
                raise SystemExit(f"Kafka's broker did not start:\n{tail}") from None
            time.sleep(0.1)
            continue
        return
