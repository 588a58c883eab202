"""Runs the services of docker-compose.yml as processes of this machine.

Each service gets a loopback address of its own in the place of its container, a directory in the
place of its volume, and a free port for each of its ports; secrets are files of the directory.
Commands, environments and health checks are those of the file with these replaced. etcd is that of
tests/etcd.py.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs

from tests.etcd import etcd_program
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
STOP_TIMEOUT_S = 60.0
_LEAST_LIMIT_S = 100.0
"""A check is a process of its own, too: on a busy machine few fit into the limit of the file."""


def load() -> dict[str, Any]:
    """Read the file as docker does when no variable is set: ${NAME:-default} is the default."""
    text = (ROOT / "docker-compose.yml").read_text()
    document: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return document


def program(name: str) -> str | None:
    """Return the path of a program of a service; None for etcd's where there is no etcd."""
    return etcd_program(name) if name.startswith("etcd") else str(BIN / name)


def has_etcd() -> bool:
    return all(program(name) for name in ("etcd", "etcdctl"))


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match, text
    return float(match[1])


@contextmanager
def running(made: "Stack") -> Iterator["Stack"]:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        pytest.skip("this machine has one loopback address only")
    try:
        yield made
    finally:
        made.kill()


class Service:
    def __init__(self, name: str, spec: dict[str, Any], number: int, directory: Path) -> None:
        self.name = name
        self.spec = spec
        self.address = f"127.0.0.{number}"
        self.directory = directory / name
        self.directory.mkdir()
        # "127.0.0.1:9876:9876" publishes the container's 9876.
        inside = [str(each).rpartition(":")[2] for each in spec.get("ports", ())]
        inside += spec.get("expose", ())
        self.port = inside[0]
        self.ports = {port: str(free_port()) for port in inside}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.ports[self.port]}"

    @property
    def log(self) -> str:
        return (self.directory.parent / f"{self.name}.log").read_text()


class Stack:
    """Services without a profile, or those of `names`, as with `docker compose up NAME...`.

    Args:
        directory: of everything.
        names: names of the services; without them those that have no profile.
        settings: settings of each broker here beside those of the file.
        document: the file, changed; None: as it is.
    """

    def __init__(
        self,
        directory: Path,
        names: Collection[str] = (),
        *,
        settings: Mapping[str, str] | None = None,
        document: dict[str, Any] | None = None,
    ) -> None:
        self.document = load() if document is None else document
        self._settings = [
            word for pair in (settings or {}).items() for word in ("-D", "=".join(pair))
        ]
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        for name in self.document["secrets"]:
            (self.secrets / name).write_text("0123456789abcdef" * 4 + "\n")
        self.elsewhere = directory / "elsewhere"  # nothing may be written where a container starts
        self.elsewhere.mkdir()
        self.services = {
            name: Service(name, spec, number, directory)
            for number, (name, spec) in enumerate(self.document["services"].items(), start=2)
            if (name in names if names else "profiles" not in spec)
        }

    def local(self, service: Service, words: list[str]) -> list[str]:
        """Return a command with everything of its container replaced, and with its program."""
        name, *arguments = words
        found = program(name)
        assert found is not None, name
        return [found, *(self.replaced(service, word) for word in arguments)]

    def replaced(self, service: Service, text: str) -> str:
        """Replace container names, addresses, ports and /data by those of this machine."""
        names = "|".join(re.escape(name) for name in self.services)
        pattern = re.compile(
            rf"\b(?P<host>{names}):(?P<port>\d+)\b|(?<=brokerIP[12]=)(?P<ip>{names})$"
            r"|(?P<any>0\.0\.0\.0)|(?P<data>/data)\b|\b(?P<own>\d{4,5})\b"
            r"|(?P<secrets>/run/secrets)\b"
        )

        def local(match: re.Match[str]) -> str:
            if match["host"]:
                other = self.services[match["host"]]
                return f"{other.address}:{other.ports[match['port']]}"
            if match["ip"]:
                return self.services[match["ip"]].address
            if match["any"]:
                return service.address
            if match["data"]:
                return str(service.directory)
            if match["secrets"]:
                return str(self.secrets)
            return service.ports[match["own"]]

        return pattern.sub(local, text)

    def environment(self, service: Service) -> dict[str, str]:
        given: dict[str, str] = service.spec.get("environment", {})
        local = {name: self.replaced(service, text) for name, text in given.items()}
        return {"PATH": os.environ["PATH"], **local}

    def start(self) -> None:
        """Start every service once those it depends on are healthy."""
        waiting = dict(self.services)
        while waiting:
            ready = [
                service
                for service in waiting.values()
                if not waiting.keys() & service.spec.get("depends_on", {}).keys()
            ]
            assert ready, "services depend on each other in a circle"
            for service in ready:
                self.run(service)
            for service in ready:
                self.wait_healthy(service)
                del waiting[service.name]

    def run(self, service: Service) -> None:
        """Start one service."""
        command = self.local(service, service.spec["command"])
        if service.spec["command"][0] == "rocketpy-broker":
            command += self._settings
        log = service.directory.parent / f"{service.name}.log"
        with log.open("ab") as output:
            service.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.elsewhere,
                env=self.environment(service),
            )

    def wait_healthy(self, service: Service) -> None:
        check = service.spec["healthcheck"]
        limit_s = seconds(check["interval"]) * check["retries"]
        deadline = time.monotonic() + max(limit_s, _LEAST_LIMIT_S)
        while (code := self.check(service)) != 0:
            assert service.process is not None
            assert service.process.poll() is None, service.log
            assert time.monotonic() < deadline, (code, service.log)
            time.sleep(0.2)

    def check(self, service: Service) -> int:
        """Run a service's health check once; returns its exit code."""
        kind, *words = service.spec["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            self.local(service, words),
            capture_output=True,
            timeout=60,
            check=False,
            env=self.environment(service),
        )
        assert b"Traceback" not in done.stderr, done.stderr
        return done.returncode

    def stop(self, name: str) -> int:
        """Stop a service as docker does; returns its exit code."""
        [code] = self._stop([name]).values()
        return code

    def stop_all(self) -> dict[str, int]:
        """Stop every service after those that depend on it; returns the exit codes."""
        codes: dict[str, int] = {}
        while left := {name: each for name, each in self.services.items() if name not in codes}:
            needed = {other for each in left.values() for other in each.spec.get("depends_on", ())}
            codes |= self._stop([name for name in left if name not in needed])
        return codes

    def _stop(self, names: Collection[str]) -> dict[str, int]:
        processes = {name: process for name in names if (process := self.services[name].process)}
        assert processes.keys() == set(names), "all of them run"
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(STOP_TIMEOUT_S) for name, process in processes.items()}

    def kill(self) -> None:
        for service in self.services.values():
            if service.process is not None and service.process.poll() is None:
                service.process.kill()
                service.process.wait()
