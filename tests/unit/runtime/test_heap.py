import os
import subprocess
import sys

BURST = """
import sys
from pathlib import Path
from rocketpy.runtime.os_resources import set_mmap_threshold

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

assert set_mmap_threshold()
kept = []
for _ in range(3):
    burst = []
    for _ in range(30):
        burst.append(bytearray(4 << 20))
        kept.append(bytes(5000))
    burst.clear()
print(resident_mib())
"""


def test_set_mmap_threshold_returns_memory_of_a_burst() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BURST],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert int(done.stdout) < 60, "120 MiB were in use three times"
