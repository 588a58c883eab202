"""`python -m rocketpy.testing`: a cluster for tests in other languages.

Prints one line of JSON, `{"namesrv": "127.0.0.1:40123", "brokers": ["127.0.0.1:40124"]}`, and
runs until its standard input closes or SIGTERM arrives; then the store directory is removed.

    python -m rocketpy.testing [--brokers 2] [-D key=value ...]
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rocketpy.runtime import logs
from rocketpy.testing.cluster import ClusterThread


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: list[str] | None = None) -> int:
    """Run a cluster until standard input closes or a signal arrives.

    Args:
        arguments: the command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(prog="python -m rocketpy.testing", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1, help="number of masters")
    parser.add_argument(
        "-D", action="append", default=[], metavar="key=value", help="broker.conf key"
    )
    options = parser.parse_args(arguments)
    properties = dict(define.split("=", 1) for define in options.D if "=" in define)
    if len(properties) != len(options.D):
        parser.error("-D takes key=value")
    logs.configure(level="warning")  # to standard error, because standard output has the one line
    signal.signal(signal.SIGTERM, _stop)
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-testing-") as scratch,
        ClusterThread(Path(scratch), brokers=options.brokers, properties=properties) as cluster,
    ):
        addresses = {"namesrv": cluster.namesrv, "brokers": cluster.broker_addresses}
        print(json.dumps(addresses), flush=True)  # noqa: T201 - the command's only output
        while sys.stdin.readline():
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
