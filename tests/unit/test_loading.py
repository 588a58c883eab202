"""When the client is loaded: before an event loop runs, and not by programs that do not use it."""

import subprocess
import sys

import pytest

IN_A_LOOP = """
import asyncio, sys
import rocketpy

async def main():
    before = set(sys.modules)
    async with rocketpy.connect("127.0.0.1:1", group="g") as client:
        client.producer()
        for make in (client.consumer, client.pop_consumer):
            make("t", group="c")
        client.pull_consumer(group="p")
        rocketpy.ToDLQ, rocketpy.errors.ClosedError
    print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""


def printed_by(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["rocketpy", "rocketpy.errors", "rocketpy.otel", "rocketpy.sync"])
def test_nothing_is_imported_inside_the_running_loop(first: str) -> None:
    assert printed_by("-c", f"import {first}\n{IN_A_LOOP}") == "[]"


@pytest.mark.parametrize(
    ("statement", "is_loaded"),
    [
        ("import rocketpy", True),
        ("from rocketpy import connect", True),
        ("from rocketpy.errors import ClosedError", True),
        ("import rocketpy.otel", True),
        ("from rocketpy.otel import Telemetry", True),
        ("from rocketpy.sync import connect", True),
        ("import importlib; importlib.import_module('rocketpy')", True),
        ("import rocketpy.cli.main", False),
        ("from rocketpy.cli.main import command; import rocketpy", False),
        ("import rocketpy.testing.plugin", False),
        ("import rocketpy.spark", False),
        ("from rocketpy.proto.wire import codes", False),
    ],
)
def test_the_client_is_loaded_by_whoever_imports_the_package_itself(
    statement: str, *, is_loaded: bool
) -> None:
    told = "import sys; print('rocketpy.client.client' in sys.modules)"
    assert printed_by("-c", f"{statement}; {told}") == str(is_loaded)


def test_the_command_line_does_not_load_it() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rocketpy", "--version"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "rocketpy.cli.main" in done.stderr
    assert "rocketpy.client.client" not in done.stderr
