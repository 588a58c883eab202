"""`rocketpy` on package indexes is a flight simulator; beside it, errors say what happened.

Both distributions own `rocketpy/__init__.py`. A stand-in with that file and one more module
is installed before or after ours, or installed and removed again.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
METADATA = """Metadata-Version: 2.1
Name: rocketpy
Version: 1.10.0
Summary: Advanced 6-DOF trajectory simulation for High-Power Rocketry.
"""
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SIMULATOR = {
    "rocketpy/__init__.py": "from rocketpy.rocket import Rocket\n\n\nclass Flight: ...\n",
    "rocketpy/rocket/__init__.py": "class Rocket: ...\n",
    "rocketpy-1.10.0.dist-info/METADATA": METADATA,
    "rocketpy-1.10.0.dist-info/WHEEL": WHEEL,
}

pytestmark = pytest.mark.timeout(300)


def pip(*arguments: str, environ: dict[str, str] | None = None) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **(environ or {})},
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("wheels")
    theirs = directory / "rocketpy-1.10.0-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as archive:
        for name, text in SIMULATOR.items():
            archive.writestr(name, text)
        lines = [f"{name},," for name in (*SIMULATOR, "rocketpy-1.10.0.dist-info/RECORD")]
        archive.writestr("rocketpy-1.10.0.dist-info/RECORD", "\n".join(lines) + "\n")
    build = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(directory)]
    pip(*build, str(ROOT), environ={"ROCKETPY_PURE": "1"})
    (ours,) = directory.glob("rocketpy_mq-*.whl")
    return {"ours": str(ours), "theirs": str(theirs)}


class Environment:
    """Virtual environment that finds the dependencies of the running one."""

    def __init__(self, directory: Path, wheels: dict[str, str]) -> None:
        venv.create(directory, with_pip=False)
        self._bin = directory / "bin"
        self._wheels = wheels
        (site,) = (directory / "lib").glob("python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def install(self, *names: str) -> None:
        for name in names:
            wheel = self._wheels[name]
            python = ["--python", str(self._bin / "python")]
            pip(*python, "install", "--no-deps", "--no-index", "--force-reinstall", wheel)

    def uninstall(self, name: str) -> None:
        pip("--python", str(self._bin / "python"), "uninstall", "--yes", name)

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environ = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=environ,
        )

    def last_error(self, program: str, *arguments: str) -> str:
        done = self.run(program, *arguments)
        assert done.returncode == 1, done.stdout
        return done.stderr.splitlines()[-1]


@pytest.fixture
def environment(tmp_path: Path, wheels: dict[str, str]) -> Environment:
    return Environment(tmp_path / "environment", wheels)


OURS = [
    ("rocketpy", "--version"),
    ("rocketpy-broker", "--help"),
    ("rocketpy-controller", "--help"),
    ("rocketpy-namesrv", "--help"),
    ("python", "-m", "rocketpy"),
    ("python", "-c", "import rocketpy.sync"),
    ("python", "-c", "import rocketpy.client.client"),
    ("python", "-c", "from rocketpy.errors import RocketPyError"),
    ("python", "-c", "from rocketpy.testing.cluster import LocalCluster"),
]


def test_simulator_installed_last_every_module_of_ours_names_both(environment: Environment) -> None:
    environment.install("ours", "theirs")
    for command in OURS:
        error = environment.last_error(*command)
        assert error.startswith("ImportError: rocketpy-mq (Apache RocketMQ in Python) and"), command
        assert "rocketpy/__init__.py is the flight simulator's" in error
        assert "separate environments" in error
    works = environment.run("python", "-c", "from rocketpy import Flight, Rocket")
    assert works.returncode == 0, "the simulator itself is not disturbed"


def test_simulator_installed_first_its_names_are_explained(environment: Environment) -> None:
    environment.install("theirs", "ours")
    for statement in ("from rocketpy import Flight", "import rocketpy; rocketpy.Flight"):
        error = environment.last_error("python", "-c", statement)
        assert error.startswith("ImportError: rocketpy-mq (Apache RocketMQ in Python) has no 'Fl")
        assert "flight simulator rocketpy 1.10.0 is installed in the same environment" in error
    assert environment.run("rocketpy", "--version").returncode == 0


def test_simulator_removed_missing_package_file_is_named(environment: Environment) -> None:
    environment.install("ours", "theirs")
    environment.uninstall("rocketpy")
    for command in OURS:
        error = environment.last_error(*command)
        assert error.startswith("ImportError: rocketpy/__init__.py is missing"), command
    environment.install("ours")
    assert environment.run("rocketpy", "--version").returncode == 0


def test_alone_an_unknown_name_is_an_attribute_error(environment: Environment) -> None:
    environment.install("ours")
    error = environment.last_error("python", "-c", "import rocketpy; rocketpy.Flight")
    assert error == "AttributeError: module 'rocketpy' has no attribute 'Flight'"
