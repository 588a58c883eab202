"""Many queues with few messages: what the first message of each costs, and what a start costs.

    python -m bench.many_queues [--topics 1000] [--queues 8] [--messages 9000] [--directory DIR]

One process puts the messages and is killed; the next starts, flushes everything and ends; a third
starts after that clean end. Each says what it took, what it holds, and how many descriptors.
"""

import argparse
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def _open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _store(directory: Path) -> MessageStore:
    return MessageStore(MessageStoreConfig(store_path_root_dir=str(directory)), clock=SystemClock())


def _put(store: MessageStore, topics: int, queues: int, messages: int) -> None:
    """Put messages, the first of each queue timed."""
    first_us: list[float] = []
    later_us: list[float] = []
    for number in range(messages):
        queue = number % (topics * queues)
        message = PutMessage(f"Topic-{queue // queues}", queue % queues, b"x" * 100)
        begin = time.perf_counter()
        assert store.put_message(message).status is PutMessageStatus.PUT_OK
        took_us = (time.perf_counter() - begin) * 1e6
        (first_us if number < topics * queues else later_us).append(took_us)
    for name, each in (("first", first_us), ("later", later_us)):
        if each:
            each.sort()
            print(
                f"  {name} message of a queue: median {statistics.median(each):.0f} us, "
                f"99 % {each[len(each) * 99 // 100]:.0f} us, most {each[-1]:.0f} us"
            )


def _life(phase: str, directory: Path, topics: int, queues: int, messages: int) -> None:
    before_mib, before_count = _resident_mib(), _open_count()
    begin = time.perf_counter()
    store = _store(directory)
    store.open()
    opened = time.perf_counter()
    print(
        f"{phase}: open {opened - begin:.2f} s, resident {_resident_mib():.0f} MiB "
        f"({_resident_mib() - before_mib:.0f} more), descriptors {_open_count() - before_count}"
    )
    if phase == "put":
        store.start()
        _put(store, topics, queues, messages)
        print(
            f"  resident {_resident_mib():.0f} MiB, descriptors {_open_count() - before_count}, "
            f"threads {threading.active_count()}",
            flush=True,
        )
        os.kill(os.getpid(), signal.SIGKILL)
    found = sum(store.max_offset(f"Topic-{t}", q) for t in range(topics) for q in range(queues))
    assert found == messages, (found, messages)
    begin = time.perf_counter()
    store.close()
    print(
        f"  close with all flushes {time.perf_counter() - begin:.2f} s, "
        f"most resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Run all lives, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--messages", type=int, default=9_000)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--life", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.life:
        _life(options.life, options.directory, options.topics, options.queues, options.messages)
        return
    directory = options.directory or Path(tempfile.mkdtemp(prefix="many-queues-"))
    arguments = [f"--topics={options.topics}", f"--queues={options.queues}"]
    arguments += [f"--messages={options.messages}", f"--directory={directory}"]
    try:
        for life in ("put", "start after a kill", "start after a clean end"):
            subprocess.run(
                [sys.executable, "-m", "bench.many_queues", *arguments, f"--life={life}"],
                check=False,
            )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
