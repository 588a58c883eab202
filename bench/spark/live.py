"""RocketPy broker with the messages of a store, from a copy of its files."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import start_rocketpy
from bench.spark import QUEUES
from bench.spark.stores import TOPIC, Store

START_S = 300
PULLS = (
    "maxTransferCountOnMessageInMemory=1024",
    "maxTransferBytesOnMessageInMemory=8388608",
)
"""Limits that docs/spark.md recommends; the default is 32 messages a pull, as Apache's."""
NO_INDEX = ("messageIndexEnable=false",)
"""No index: the copied files have none, and building it would disturb the measurement."""


@contextmanager
def serving(home: Path, store: Store | None) -> Iterator[str]:
    """Run name server and broker with the messages of a store, or none; yields the name server."""
    if store is not None:
        root = home / "data" / "store"
        root.parent.mkdir(parents=True)
        subprocess.run(["cp", "-r", "--sparse=always", str(store.root), str(root)], check=True)
        (root / "config").mkdir()
        topic = {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        (root / "config" / "topics.json").write_text(
            json.dumps({"topicConfigTable": {TOPIC: topic}, "dataVersion": {"counter": 1}})
        )
    settings = PULLS if store is None else PULLS + NO_INDEX
    side = start_rocketpy(home, settings, limit_s=START_S)
    try:
        yield side.namesrv
    finally:
        side.stop()
