import subprocess
import sys

import pytest

pytest.importorskip("rich")  # comes with import-linter
DAEMON = "import rocketpy.cli.servers.standalone, sys; "


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_daemon_does_not_import_rich() -> None:
    told = run(
        DAEMON
        + "print('structlog' in sys.modules, 'rich' in sys.modules); "
        + "from rich.console import Console; print(Console.__name__)"
    )
    assert told == "True False\nConsole"


def test_rich_imported_earlier_stays_usable() -> None:
    assert run("import rich.console; " + DAEMON + "print('rich.console' in sys.modules)") == "True"
    assert run("import structlog; " + DAEMON + "print('rich.console' in sys.modules)") == "True"


def test_errors_of_a_daemon_are_printed_plainly() -> None:
    told = run(
        DAEMON
        + "from rocketpy.runtime import logs; logs.configure(stream=sys.stdout); import structlog\n"
        + "try: 1 / 0\n"
        + "except ZeroDivisionError: structlog.get_logger('d').exception('failed')\n"
    )
    assert "failed" in told
    assert told.endswith("ZeroDivisionError: division by zero")
