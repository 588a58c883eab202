"""A lost master and a planned change, under load: what senders notice.

Starts a controller, a name server and three replicas of one broker group as processes, and sends
messages one after the other with 32 senders. After some seconds the master is killed (kill -9),
later the new one is stopped in order. A line for each second shows the rate and the master; at the
end every acknowledged message must be readable, and `failover.svg` shows the rate over time.

    .venv/bin/python examples/failover_demo.py [--seconds 20] [--picture failover.svg]
"""

import argparse
import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flights import end_on_sigterm

import rocketpy
import rocketpy.admin
from rocketpy.errors import RocketPyError

TOPIC = "failover-demo"
SENDERS = 32
REPLICAS = 3
STEP_S = 0.1
"""Width of a bar in the picture."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Processes:
    """Controller, name server and replicas.

    Attributes:
        namesrv: address of the name server.
        replicas: names of the replicas by their addresses.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        (directory / "secret").write_text("not a secret, this group lives for a minute\n")
        controller, names, *ports = free_ports(2 + 2 * REPLICAS)
        self.namesrv = f"127.0.0.1:{names}"
        inside = ["-D", "bindAddress=127.0.0.1"]
        self._commands = {
            "controller": ["controller", "-p", str(controller), *inside,
                           "-D", f"controllerStorePath={directory / 'controller'}"],
            "namesrv": ["namesrv", "-p", str(names), *inside,
                        "-D", f"dataDir={directory / 'namesrv'}"],
        }  # fmt: skip
        self.replicas: dict[str, str] = {}
        for number in range(REPLICAS):
            name = f"replica {number + 1}"
            self.replicas[f"127.0.0.1:{ports[number]}"] = name
            settings = {
                "brokerName": "demo",
                "brokerIP1": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": ports[number],
                "haListenPort": ports[REPLICAS + number],
                "storePathRootDir": directory / name.replace(" ", "-"),
                "mappedFileSizeCommitLog": 64 << 20,
                "enableControllerMode": "true",
                "controllerAddr": f"127.0.0.1:{controller}",
                "replicationSecretFile": directory / "secret",
            }
            words = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
            self._commands[name] = ["broker", "-n", self.namesrv, *words]

    def start(self, *names: str) -> None:
        """Start the named processes, or all."""
        for name in names or self._commands:
            with (self._directory / f"{name.replace(' ', '-')}.log").open("ab") as log:
                self._running[name] = subprocess.Popen(
                    [sys.executable, "-m", "rocketpy", *self._commands[name]],
                    stdout=log,
                    stderr=log,
                )

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self._running[name].send_signal(number)

    def wait(self, name: str) -> None:
        """Wait for the end of a process."""
        self._running[name].wait()

    def stop(self) -> None:
        """Stop all, the replicas first."""
        for process in reversed(self._running.values()):
            process.terminate()
        for process in self._running.values():
            process.wait(30)


@dataclass
class Sent:
    """Sends of the demo.

    Attributes:
        began_s: monotonic time of the first one.
        acknowledged: bodies that were answered SEND_OK.
        steps: number of them in each step of time.
        errors: number of errors by their class.
        times_s: times of the acknowledged messages since the begin.
    """

    began_s: float = field(default_factory=time.monotonic)
    acknowledged: set[bytes] = field(default_factory=set[bytes])
    steps: Counter[int] = field(default_factory=Counter[int])
    errors: Counter[str] = field(default_factory=Counter[str])
    times_s: list[float] = field(default_factory=list[float])

    @property
    def elapsed_s(self) -> float:
        """Time since the begin."""
        return time.monotonic() - self.began_s

    async def send(self, producer: rocketpy.Producer, number: int) -> None:
        """Send one message after the other until cancelled."""
        count = 0
        while True:
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                result = await producer.send(TOPIC, body)
            except RocketPyError as error:
                self.errors[type(error).__name__] += 1
                continue
            if result.status is rocketpy.SendStatus.SEND_OK:
                self.acknowledged.add(body)
                self.times_s.append(self.elapsed_s)
                self.steps[int(self.elapsed_s / STEP_S)] += 1

    def gap_s(self, after_s: float, before_s: float) -> float:
        """Return the longest time without an acknowledged message in a range."""
        found = [each for each in self.times_s if after_s - 1 <= each <= before_s]
        return max((b - a for a, b in itertools.pairwise(found)), default=0.0)


async def master_of(admin: rocketpy.admin.Admin, processes: Processes) -> str:
    """Return the name of the master, once all replicas follow one."""
    while True:
        try:
            rows = await admin.replicas()
        except RocketPyError:
            rows = []
        masters = [each.address for each in rows if each.broker_id == 0]
        if masters and len(rows) == REPLICAS:
            return processes.replicas[masters[0]]
        await asyncio.sleep(0.2)


async def restart(processes: Processes, name: str) -> None:
    """Start a replica again a moment after its end: it comes back as a slave."""
    await asyncio.sleep(1)
    await asyncio.to_thread(processes.wait, name)
    processes.start(name)


def draw(sent: Sent, marks: Sequence[tuple[float, str]], seconds: int) -> str:
    """Return an SVG of the rate over time."""
    width, height, left = 900, 240, 60
    most = max(sent.steps.values(), default=1)
    scale = (width - left - 10) / seconds
    bars = "".join(
        f'<rect x="{left + step * STEP_S * scale:.1f}" y="{height - 30 - count / most * 180:.1f}" '
        f'width="{STEP_S * scale:.1f}" height="{count / most * 180:.1f}" fill="#1f6feb"/>'
        for step, count in sorted(sent.steps.items())
        if step * STEP_S < seconds
    )
    lines = "".join(
        f'<line x1="{left + at * scale:.1f}" x2="{left + at * scale:.1f}" y1="20" '
        f'y2="{height - 30}" stroke="#cf222e"/>'
        f'<text x="{left + at * scale + 4:.1f}" y="16" fill="#cf222e">{text}</text>'
        for at, text in marks
    )
    axis = "".join(
        f'<text x="{left + at * scale:.1f}" y="{height - 12}">{at} s</text>'
        for at in range(0, seconds + 1, 5)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="4" y="56">{most / STEP_S:,.0f}/s</text>{bars}{lines}{axis}</svg>\n'
    )


async def run(processes: Processes, seconds: int, picture: Path) -> int:
    """Run the demo; return the exit code."""
    async with rocketpy.admin.connect(processes.namesrv) as admin:
        master = await master_of(admin, processes)
        print(f"{REPLICAS} replicas, the master is {master}")
        await admin.create_topic(TOPIC, queues=8)
    kills = {seconds // 4: signal.SIGKILL, seconds * 5 // 8: signal.SIGTERM}
    marks: list[tuple[float, str]] = []
    restarts: list[asyncio.Task[None]] = []
    async with (
        rocketpy.connect(processes.namesrv) as client,
        rocketpy.admin.connect(processes.namesrv) as admin,
        client.producer(timeout=10) as producer,
    ):
        sent = Sent()
        tasks = [asyncio.create_task(sent.send(producer, each)) for each in range(SENDERS)]
        before = 0
        try:
            for second in range(1, seconds + 1):
                await asyncio.sleep(max(0.0, second - sent.elapsed_s))
                print(f"{second:3} s  {len(sent.acknowledged) - before:7,} acknowledged")
                before = len(sent.acknowledged)
                number = kills.get(second)
                if number is not None:
                    master = await master_of(admin, processes)
                    what = "killed" if number is signal.SIGKILL else "stopped"
                    print(f"       {master}, the master, is {what}")
                    marks.append((sent.elapsed_s, f"{master} {what}"))
                    processes.send_signal(master, number)
                    restarts.append(asyncio.create_task(restart(processes, master)))
        finally:
            for task in tasks:  # sends of a closed client would fail without a pause
                task.cancel()
        await asyncio.gather(*tasks, *restarts, return_exceptions=True)
        read = {
            bytes(message.body)
            async for message in client.read(TOPIC, start="earliest", until="end")
        }
    lost = sent.acknowledged - read
    for at, what in marks:
        print(f"{what}: {sent.gap_s(at, at + 5):.2f} s without an acknowledged message")
    errors = ", ".join(f"{count} {name}" for name, count in sent.errors.items()) or "none"
    print(f"{len(sent.acknowledged):,} messages acknowledged, {len(lost)} lost; errors: {errors}")
    await asyncio.to_thread(picture.write_text, draw(sent, marks, seconds))
    print(f"picture: {picture}")
    return 1 if lost else 0


def main() -> int:
    """Run the demo of the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="Example: examples/failover_demo.py --seconds 30",
    )
    parser.add_argument("--seconds", type=int, default=20, help="length of the load, at least 8")
    parser.add_argument("--picture", type=Path, default=Path("failover.svg"), help="file to draw")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketpy-failover-") as directory:
        processes = Processes(Path(directory))
        end_on_sigterm()
        try:
            processes.start()
            return asyncio.run(run(processes, max(8, options.seconds), options.picture))
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            processes.stop()


if __name__ == "__main__":
    sys.exit(main())
