"""The demo of fail-over, shorter than as users start it."""

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
