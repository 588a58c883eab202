"""The official Go client, where Go and its module proxy are at hand."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread

HERE = Path(__file__).parent

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from a copy so that nothing is written here."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    source = tmp_path_factory.mktemp("go")
    for name in ("go.mod", "go.sum", "main.go"):
        shutil.copy(HERE / "go" / name, source)
    target = source / "interop"
    built = subprocess.run(
        ["go", "build", "-o", str(target), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip("needs the Go module proxy")
    assert built.returncode == 0, built.stderr
    return target


def test_go_client_sends_and_consumes(program: Path, tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster:
        run = subprocess.run(
            [str(program), cluster.namesrv, "GoTopic", "goGroup"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["statuses"] == ["0"] * 6
    # Everything but the messages with tag C; large ones were compressed by the client.
    assert found["received"] == [
        *(f"async-{number}" for number in range(3)),
        *("batch-0", "batch-2", "large-0-20001", "large-1-20001", "oneway-0"),
        *("sync-0", "sync-1", "sync-3", "sync-4"),
    ]
