"""Measures the cost of a message in a client's process; prints and stores a table.

python -m bench.sdk [--quick] [--rounds 3] [--rows iterate,...] [--clients rocketpy,...]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench.processes import ROOT, compile_package, end_on_sigterm
from bench.report import commit, interpreter, machine, store
from bench.sdk.report import about, table
from bench.sdk.rows import CLIENTS, MOST_READ, OURS, ROWS, Measured, Row
from bench.sdk.servers import NotHereError, started, versions

LIMIT_S = 600


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.sdk")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a row and client")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages; not kept")
    parser.add_argument("--rows", default="", help="only these, by key, separated by commas")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="only these")
    parser.add_argument("--no-store", action="store_true", help="do not write bench/results")
    parser.add_argument("--list", action="store_true", help="print the keys of all rows")
    return parser.parse_args()


def measure(client: str, row: str, address: str, messages: int, name: str) -> Measured:
    """Run a row in a separate process.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "bench.sdk.measured", client, row, address, str(messages)]
    ran = subprocess.run(
        [*command, name], capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, check=False
    )
    if ran.returncode:
        raise SystemExit(f"{client} {row} failed:\n{ran.stdout}{ran.stderr}")
    return Measured(**json.loads(ran.stdout.splitlines()[-1]))


def run(
    rows: Sequence[Row], addresses: dict[str, str], rounds: int, share: float
) -> dict[str, dict[str, list[Measured]]]:
    """Measure every row in rounds, with alternating order of the clients."""
    found: dict[str, dict[str, list[Measured]]] = {row.key: {} for row in rows}
    if any(row.reads for row in rows):
        for client, address in addresses.items():
            say(f"{client}: filling what is read")
            measure(client, "fill", address, int(MOST_READ * share * 1.2), "fill")
    for number in range(rounds):
        for row in rows:
            clients = [each for each in addresses if each == OURS or each in row.beside]
            for client in clients if number % 2 == 0 else reversed(clients):
                name = f"{row.key}-{number}"
                messages = max(1000, int(row.messages * share))
                result = measure(client, row.key, addresses[client], messages, name)
                found[row.key].setdefault(client, []).append(result)
                say(
                    f"round {number + 1}: {row.name}: {client} {result.cpu_us:.1f} us CPU, "
                    f"{result.wall_us:.1f} us"
                )
    return found


def main() -> int:
    """Run the benchmark."""
    opts = options()
    if opts.list:
        print("\n".join(f"{row.key:14} {row.name}" for row in ROWS))
        return 0
    end_on_sigterm()
    keys = [key for key in opts.rows.split(",") if key]
    rows = [row for row in ROWS if not keys or row.key in keys]
    compile_package()
    scratch = Path(tempfile.mkdtemp(prefix="rocketpy-bench-sdk-"))
    load, began_s = f"{os.getloadavg()[0]:.1f}", time.monotonic()
    addresses: dict[str, str] = {}
    missing: dict[str, str] = {}
    try:
        with ExitStack() as closing:
            for client in opts.clients.split(","):
                say(f"starting the server of {client}")
                try:
                    address = closing.enter_context(started(client, scratch / client))
                except NotHereError as error:
                    missing[client] = str(error)
                    say(f"not here: {error}")
                    continue
                addresses[client] = address
            found = run(rows, addresses, 1 if opts.quick else opts.rounds, 0.1 if opts.quick else 1)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = table(found, missing)
    print(text)
    say(f"took {(time.monotonic() - began_s) / 60:.1f} minutes")
    if not (opts.no_store or opts.quick):
        said = {"rounds": opts.rounds, "load": load}
        paragraph = about(said, versions(), commit()) + f" CPython {interpreter()}."
        data = {
            "commit": commit(),
            "machine": machine(),
            "options": said,
            "versions": versions(),
            "missing": missing,
            "about": paragraph,
            "rounds": {
                row: {client: [asdict(each) for each in of] for client, of in by_client.items()}
                for row, by_client in found.items()
            },
        }
        kept = store(data, f"{text}\n\n{paragraph}", "-sdk")
        say(f"stored as {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
