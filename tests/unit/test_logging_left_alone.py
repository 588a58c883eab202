"""Logging is the program's own: importing and using the client changes nothing of it."""

import subprocess
import sys

PROGRAM = """
import logging
import sys

FORMATS = (logging.getLoggerClass(), logging.getLogRecordFactory(), logging.lastResort)
logging.getLogger("mine").setLevel(logging.ERROR)
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
ROOT = logging.getLogger()
BEFORE = (ROOT.level, list(ROOT.handlers), ROOT.disabled, logging.root.manager.disable)


def check_logging(moment):
    now = (ROOT.level, list(ROOT.handlers), ROOT.disabled, logging.root.manager.disable)
    assert now == BEFORE, moment
    same = (logging.getLoggerClass(), logging.getLogRecordFactory(), logging.lastResort)
    assert same == FORMATS, moment
    found = 0
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "rocketpy" and isinstance(logger, logging.Logger):
            found += 1
            assert [each for each in logger.handlers if type(each) is not logging.NullHandler] == []
            assert logger.level == logging.NOTSET, name
            assert logger.propagate and not logger.disabled and not logger.filters, name
    assert found or moment == "before", moment


check_logging("before")
import rocketpy
import rocketpy.sync

check_logging("imported")
assert "structlog" not in sys.modules, "clients have no use for it"

import structlog

if "configured" in sys.argv:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
CONFIG = structlog.get_config()

import asyncio

from rocketpy.testing.sim_cluster import run_simulation

seen = []


async def scenario(cluster):
    app = rocketpy.App(cluster.client(group="app"))
    handled = asyncio.Event()

    @app.subscribe("t", group="billing", start="earliest")
    async def bill(body: str) -> None:
        seen.append(body)
        handled.set()
        check_logging("in a handler")
        raise rocketpy.ToDLQ("so that something is logged")

    async with app:
        async with cluster.client(group="g") as client:
            await client.producer().send("t", "x")
            client.producer().send_oneway("nobody-has-that", b"x")
            async with client.consumer("t", group="c", start="earliest") as consumer:
                async for _ in consumer:
                    break
            async with client.pop_consumer("t", group="p") as pop:
                await pop.getone(0.1)
            pull = client.pull_consumer(group="q")
            await pull.start()
            await pull.close()
        await handled.wait()


run_simulation(scenario)
assert set(seen) == {'x'}, seen
check_logging("used")
assert structlog.get_config() == CONFIG
assert structlog.is_configured() == ("configured" in sys.argv)

with rocketpy.sync.connect("127.0.0.1:1", group="g") as client:
    client.producer()
check_logging("the blocking face")
print("left alone")
"""

QUIET_PROGRAM = """
import rocketpy.sync
with rocketpy.sync.connect("127.0.0.1:1", group="g") as client:
    client.producer()
"""


def said(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_loggers_and_structlog_stay_as_they_were() -> None:
    assert said()[-1] == "left alone"


def test_program_s_own_structlog_stays_as_it_was() -> None:
    assert said("configured")[-1] == "left alone"


def test_without_any_set_up_nothing_is_printed_of_what_goes_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET_PROGRAM],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
