"""A job queue: functions called by name, later, elsewhere, and again when they fail.

A job is a message: the function's name is its tag, the arguments its body. A worker looks the
function up and calls it; one that raises is tried again with growing pauses, and after three times
its job is a dead letter (the topic %DLQ%workers).

    rocketpy standalone --data ./data
    rocketpy topic create jobs
    python examples/job_queue.py work
    python examples/job_queue.py submit mail --to ann@example.org --delay 5
"""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable

import rocketpy
from rocketpy.errors import RocketPyError

TOPIC, GROUP, RETRIES = "jobs", "workers", 3

Job = Callable[..., Awaitable[None]]
JOBS: dict[str, Job] = {}


def job(function: Job) -> Job:
    """Make a function one that can be submitted by its name."""
    JOBS[function.__name__] = function
    return function


@job
async def mail(to: str) -> None:
    """Stand for something slow that may fail."""
    if "@" not in to:
        raise ValueError(f"{to!r} is no address")
    await asyncio.sleep(0.01)
    print(f"mail to {to}", flush=True)


@job
async def add(a: int, b: int) -> None:
    """Show that arguments keep their types."""
    print(f"{a} + {b} = {a + b}", flush=True)


async def submit(
    producer: rocketpy.Producer, name: str, delay_s: float = 0, **arguments: object
) -> str:
    """Have a worker call a job.

    Args:
        producer: with the JSON serializer.
        name: of the job.
        delay_s: no sooner than after so many seconds.
        **arguments: for the job; JSON must know their types.

    Returns:
        The job's id.

    Raises:
        KeyError: the job does not exist.
    """
    JOBS[name]  # a misspelt name fails here, not at the worker
    if delay_s:
        return (await producer.send(TOPIC, arguments, tag=name, delay=delay_s)).msg_id
    return (await producer.send(TOPIC, arguments, tag=name)).msg_id


async def call(arguments: dict[str, object], message: rocketpy.ReceivedMessage) -> None:
    """Run a job; after an exception it is retried."""
    function = JOBS.get(message.tag)
    if function is None:
        raise rocketpy.ToDLQ(f"there is no job {message.tag!r}")
    try:
        await function(**arguments)
    except Exception as error:
        print(f"{message.tag} failed, try {message.retries + 1}: {error}", flush=True)
        if message.retries >= RETRIES:
            raise rocketpy.ToDLQ(str(error)) from error
        raise rocketpy.Retry(delay_level=message.retries + 1) from error  # 1 s, 5 s, 10 s


async def work(name_server: str) -> None:
    """Run jobs until a signal; running ones finish."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        rocketpy.connect(name_server) as client,
        client.consumer(
            TOPIC, group=GROUP, start="earliest", serializer=rocketpy.json, handler=call
        ),
    ):
        print("working", flush=True)
        await stop.wait()


async def submit_one(name_server: str, to: str, delay_s: float) -> None:
    """Submit a mail."""
    async with rocketpy.connect(name_server, group="submitters") as client:
        print(await submit(client.producer(serializer=rocketpy.json), "mail", delay_s, to=to))


def main() -> None:
    """Read the command line; work, or submit a job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name-server", default="127.0.0.1:9876")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("work")
    mail_options = commands.add_parser("submit").add_subparsers(dest="job", required=True)
    mail_parser = mail_options.add_parser("mail")
    mail_parser.add_argument("--to", required=True)
    mail_parser.add_argument("--delay", type=float, default=0)
    options = parser.parse_args()
    if options.command == "work":
        asyncio.run(work(options.name_server))
    else:
        asyncio.run(submit_one(options.name_server, options.to, options.delay))


if __name__ == "__main__":
    try:
        main()
    except RocketPyError as error:  # such as name servers that do not answer
        raise SystemExit(f"error: {error}") from None
