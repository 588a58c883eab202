"""A broker of ours that has the messages of a store: its files are copied below the broker's."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import start_rocketpy
from bench.spark.stores import QUEUES, TOPIC, Store

START_S = 300
PULLS = (
    "maxTransferCountOnMessageInMemory=1024",
    "maxTransferBytesOnMessageInMemory=8388608",
)
"""What docs/spark.md advises: a pull gives 32 messages else, as Apache's brokers do."""
NO_INDEX = ("messageIndexEnable=false",)
"""The files copied have none; a broker would make one beside whatever is measured."""


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
