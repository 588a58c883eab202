"""Apache's own name server and broker, one pair for the tests of this folder that only use it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

PEER = Path(__file__).parents[2] / "peer" / "peer.sh"


@pytest.fixture(scope="session")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")
    home = tmp_path_factory.mktemp("apache")
    port = free_port()
    env = {
        **os.environ,
        "PEER_NS_PORT": str(port),
        "PEER_PORT": str(free_port()),
        "PEER_HEAP": "1g",
    }
    # The servers inherit the output, so it goes to a file: a pipe would never end.
    with (home / "start.log").open("wb") as log:
        try:
            subprocess.run(
                ["bash", PEER, "start", home], env=env, check=True, stdout=log, stderr=log
            )
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run(["bash", PEER, "stop", home], env=env, check=True)
