"""The demo of fail-over, shorter than as users start it."""

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

DEMO = Path(__file__).parents[3] / "examples" / "failover_demo.py"


def test_demo_loses_nothing_and_draws_the_rate(tmp_path: Path) -> None:
    picture = tmp_path / "rate.svg"
    done = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "12", "--picture", str(picture)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 lost; " in done.stdout
    assert "killed: " in done.stdout
    assert "stopped: " in done.stdout
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_demo_that_is_terminated_stops_its_servers(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", str(DEMO)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    with demo:
        assert demo.stdout is not None
        try:
            next(line for line in demo.stdout if "acknowledged" in line)
            servers = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
            demo.send_signal(signal.SIGTERM)
            assert demo.wait(60) == 128 + signal.SIGINT
        finally:
            demo.kill()
    assert len(servers) == 5
    assert not [each for each in servers if Path(f"/proc/{each}").exists()]
    assert not list(tmp_path.iterdir())
