"""The README's examples run, and the commands it names are there."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.cli.main import COMMANDS, command
from rocketpy.testing.cluster import ClusterThread

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
APPS = [code for code in PYTHON if "TestApp(" in code]
PROGRAMS = [code for code in PYTHON if "asyncio.run(" in code and code not in APPS]
SPARK = [code for code in PYTHON if "SparkSession" in code]  # tests/spark runs it
COMMANDS_IN = "\n".join((README, (ROOT / "docs/guide/servers.md").read_text(encoding="utf-8")))
CALLS = sorted(
    set(re.findall(r"(?:^ +|; )(rocketpy(?:-\w+)?(?: [a-z][\w-]*)*)", COMMANDS_IN, re.MULTILINE))
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    cluster = ClusterThread(tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.stop()


def test_every_example_is_covered() -> None:
    assert PROGRAMS
    assert SPARK
    assert APPS
    assert len(PROGRAMS) + len(SPARK) + len(APPS) == len(PYTHON)
    assert CALLS


@pytest.mark.parametrize("code", PROGRAMS)
def test_program(cluster: ClusterThread, code: str) -> None:
    assert "127.0.0.1:9876" in code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:9876", cluster.namesrv)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SEND_OK" in done.stdout
    assert "b'hello'" in done.stdout


@pytest.mark.parametrize("code", APPS)
def test_app_without_a_broker(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", CALLS)
def test_command_is_there(call: str) -> None:
    program, *words = call.split()
    if program != "rocketpy":
        assert program.removeprefix("rocketpy-") in COMMANDS
        return
    while words:  # the words after the command are its arguments
        result = CliRunner().invoke(command, [*words, "--help"])
        if result.exit_code == 0 and "Usage:" in result.output:
            break
        words.pop()
    assert words, f"no such command: {call}"


PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_section_stands_twice(page: Path) -> None:
    """Duplicate lines as a line-by-line merge of two changes leaves them."""
    lines = page.read_text(encoding="utf-8").splitlines()
    titles = Counter(line for line in lines if line.startswith("## "))
    assert [title for title, count in titles.items() if count > 1] == []


INSTALLED = [*PAGES, *sorted((ROOT / "rocketpy").rglob("*.py")), *(ROOT / "examples").glob("*.py")]


def test_install_commands_name_this_distribution() -> None:
    """`rocketpy` on package indexes is a flight simulator."""
    other = re.compile(r"pip install '?rocketpy(?!-mq)")
    found = [path.name for path in INSTALLED if other.search(path.read_text(encoding="utf-8"))]
    assert found == []
