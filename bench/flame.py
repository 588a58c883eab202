"""Flame graphs of a send, a pull and a client's send, as SVG pictures in docs/flames.

    python -m bench.flame [--seconds 8] [send|send-compiled|pull|client ...]

Sampled by processor time, not by calls: a timer of the kernel interrupts the program at each of
its ticks (250 a second here), and the stack of Python functions at that moment is counted. What C
code takes stands in the line of Python that called it, or in the one after it; the last frame of a
stack is that line. A frame's width is its share of the time; hover to read it.
"""

import argparse
import asyncio
import html
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from bench.micro import BIG_STORE, FakeTransport, Receiver, pull_reads, send_reads
from bench.processes import ROOT, start_rocketpy
from rocketpy.runtime import logs
from rocketpy.testing.cluster import LocalCluster

FOLDER = ROOT / "docs" / "flames"
EVERY_S: Final = 0.001
_WIDTH, _ROW = 1200, 17
_NARROWEST = 0.8
_LINE_CHARACTERS = 70
Stacks = Counter[tuple[str, ...]]


@contextmanager
def sampled(stacks: Stacks, below: str) -> Iterator[None]:
    """Count stacks within a `with` block.

    Args:
        stacks: where.
        below: the function under which stacks begin; others are left out.
    """

    def take(_signal: int, frame: FrameType | None) -> None:
        names: list[str] = []
        leaf = frame
        while frame is not None:
            code = frame.f_code
            if code.co_name == below:
                if leaf is not None and names and (line := _line(leaf)):
                    names.insert(0, line)
                stacks[tuple(reversed(names))] += 1
                return
            names.append(f"{code.co_name} ({_module(code.co_filename)})")
            frame = frame.f_back

    before = signal.signal(signal.SIGPROF, take)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _module(filename: str) -> str:
    path = Path(filename)
    try:
        return str(path.relative_to(ROOT / "rocketpy"))
    except ValueError:
        return path.name


def _line(frame: FrameType) -> str:
    """Return the current line of a frame; empty at its entry."""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).strip()
    return "" if text.startswith(("def ", "async def ", "@")) else text[:_LINE_CHARACTERS]


def merged(stacks: Stacks) -> dict[str, Any]:
    """Return stacks as one tree of nodes with name, count and children by name."""
    root: dict[str, Any] = {"name": "all", "count": 0, "children": {}}
    for stack, count in stacks.items():
        node = root
        node["count"] += count
        for name in stack:
            node = node["children"].setdefault(name, {"name": name, "count": 0, "children": {}})
            node["count"] += count
    return root


def depth(node: dict[str, Any]) -> int:
    """Return the depth of a tree."""
    return 1 + max((depth(each) for each in node["children"].values()), default=0)


def _colour(name: str) -> str:
    """Return the colour of a module, the same in each picture; pale for source lines."""
    if "(" not in name or not name.endswith(")") or ".py)" not in name:
        return "#f3e9c6"
    hue = zlib.crc32(name.rsplit("(", 1)[1].encode()) % 360
    return f"hsl({hue},55%,72%)"


def svg(stacks: Stacks, title: str, about: str) -> str:
    """Draw the stacks; the root is at the bottom.

    Args:
        stacks: counted ones.
        title: above the picture.
        about: a line below it.
    """
    tree = merged(stacks)
    total = max(1, tree["count"])
    rows = depth(tree)
    height = (rows + 3) * _ROW + 16
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="6" y="16" font-size="14">{html.escape(title)}</text>',
        f'<text x="6" y="{height - 6}" fill="#555">{html.escape(about)}</text>',
    ]

    def draw(node: dict[str, Any], x: float, level: int) -> None:
        width = node["count"] / total * _WIDTH
        if width < _NARROWEST:
            return
        y = height - (level + 2) * _ROW - 8
        share = node["count"] / total * 100
        name = html.escape(node["name"])
        parts.append(
            f'<g><title>{name}: {share:.1f} %</title><rect x="{x:.1f}" y="{y}" '
            f'width="{max(0.5, width - 0.5):.1f}" height="{_ROW - 1}" '
            f'fill="{_colour(node["name"])}"/>'
        )
        fits = int((width - 6) / 6.7)
        if fits >= 3:
            text = node["name"] if len(node["name"]) <= fits else node["name"][: fits - 1] + "…"
            parts.append(f'<text x="{x + 3:.1f}" y="{y + 12}">{html.escape(text)}</text>')
        parts.append("</g>")
        for child in sorted(node["children"].values(), key=lambda each: each["name"]):
            draw(child, x, level + 1)
            x += child["count"] / total * _WIDTH

    draw(tree, 0.0, 0)
    parts.append("</svg>\n")
    return "\n".join(parts)


def widest(stacks: Stacks, count: int) -> list[tuple[str, float]]:
    """Return the most expensive source lines with their share."""
    leaves: Counter[str] = Counter()
    for stack, times in stacks.items():
        if stack:
            leaves[" < ".join(reversed(stack[-2:]))] += times
    total = max(1, stacks.total())
    return [(name, times / total) for name, times in leaves.most_common(count)]


async def _feed(connection: Receiver, chunks: list[bytes]) -> None:
    for chunk in chunks:
        connection.data_received(chunk)
        while connection.is_reading_paused:  # noqa: ASYNC110 - a slice is over: the loop turns
            await asyncio.sleep(0)


async def _inside_broker(name: str, seconds: float, stacks: Stacks) -> float:
    """Frames in, answers out, no socket; returns microseconds of processor time a message."""
    messages, taken_s = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="rocketpy-flame-") as scratch:
        async with LocalCluster(Path(scratch), properties=BIG_STORE) as cluster:
            cluster.create_topic("micro", 4)
            server: Any = cluster.brokers[0]._servers[0]  # noqa: SLF001 - a look inside, on purpose
            connection = server._selectors[0].new_connection("127.0.0.1")  # noqa: SLF001
            connection.connection_made(cast("asyncio.BaseTransport", FakeTransport()))
            count = 32_000
            sends = send_reads("micro", count, 100, 16)
            await _feed(connection, sends)
            chunks = pull_reads("micro", count) if name == "pull" else sends
            while taken_s < seconds:
                began_s = time.process_time()
                with sampled(stacks, "_feed"):
                    await _feed(connection, chunks)
                taken_s += time.process_time() - began_s
                messages += count
                await asyncio.sleep(0)
    return taken_s / messages * 1e6


async def _client_sends(namesrv: str, seconds: float, stacks: Stacks) -> float:
    """Sends of the SDK, 256 in flight, against a broker in another process."""
    import rocketpy  # noqa: PLC0415 - one picture of four

    sent = 0
    async with rocketpy.connect(namesrv, group="flame") as client:
        producer = client.producer(max_in_flight=256)
        body = b"x" * 100
        await producer.send("flame", body)
        end_s = time.process_time() + seconds
        with sampled(stacks, "_run_once"):
            while time.process_time() < end_s:
                await producer.ready()
                producer.send_nowait("flame", body)
                sent += 1
        await producer.flush()
    return seconds / sent * 1e6


def _client(seconds: float, stacks: Stacks) -> float:
    with tempfile.TemporaryDirectory(prefix="rocketpy-flame-") as scratch:
        side = start_rocketpy(Path(scratch) / "broker", settles_s=0.0)
        try:
            # asyncio's own loop: its turns are Python frames, under which stacks begin
            return asyncio.run(_client_sends(side.namesrv, seconds, stacks))
        finally:
            side.stop()


PICTURES: Final = {
    "send": "A send of 100 B inside the broker, 16 requests a socket read, all Python",
    "send-compiled": "The same, plain sends compiled",
    "pull": "A pull of 32 messages of 100 B inside the broker",
    "client": "A client's send of 100 B, 256 in flight, the SDK's side",
}


def picture(name: str, seconds: float, folder: Path) -> None:
    """Sample one load and write its picture."""
    stacks: Stacks = Counter()
    if name == "client":
        us = _client(seconds, stacks)
    else:
        us = asyncio.run(_inside_broker(name, seconds, stacks))
    about = f"{stacks.total():,} samples of processor time, {us:.1f} us a message"
    path = folder / f"{name}.svg"
    path.write_text(svg(stacks, PICTURES[name], about))
    print(f"{path}: {about}")
    for leaf, share in widest(stacks, 12):
        print(f"  {share:5.1%} {leaf}")


def main() -> int:
    """Draw each picture in a separate process, as compiled modules are selected at the start."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.flame", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("names", nargs="*", help=", ".join(PICTURES))
    parser.add_argument("--seconds", type=float, default=8.0, help="of processor time, each")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        logs.configure(level="error", log_format="console")
        picture(options.names[0], options.seconds, options.folder)
        return 0
    for name in options.names or PICTURES:
        if name not in PICTURES:
            parser.error(f"no picture {name}; there are {', '.join(PICTURES)}")
        command = [sys.executable, "-m", "bench.flame", "--here", name]
        command += ["--seconds", str(options.seconds), "--folder", str(options.folder)]
        env = os.environ | ({"ROCKETPY_PURE": "1"} if name == "send" else {})
        subprocess.run(command, check=True, cwd=ROOT, env=env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
