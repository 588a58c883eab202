"""Builds and installations, with and without a C compiler."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.compiler import compiler

ROOT = Path(__file__).parents[3]
MODULES = tuple(
    str(path.relative_to(ROOT).with_suffix("")) for path in sorted(ROOT.glob("rocketpy/**/*.pyx"))
)

WORKS = """
import asyncio
import sys
from pathlib import Path
import rocketpy
from rocketpy.testing.cluster import LocalCluster

async def main():
    async with LocalCluster(Path(sys.argv[1])) as cluster:
        async with rocketpy.connect(cluster.namesrv, group="g") as client:
            result = await client.producer().send("installed", b"body")
        print("served", cluster.brokers[0].send_path, result.offset, rocketpy.__file__)

asyncio.run(main())
"""

# Cython and the compiler take their time on a busy machine.
pytestmark = pytest.mark.timeout(600)


def run(*arguments: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    env = {key: text for key, text in os.environ.items() if not key.startswith("ROCKETPY_")}
    if "PATH" in environ:
        env.pop("CC", None)
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**env, **environ},
    )


def build(source: Path, directory: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Build a wheel as pip does, with the build tools that are installed here."""
    quick = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "-v"]
    arguments = ["-m", "pip", "wheel", *quick, "-w", str(directory), str(source)]
    return run(*arguments, cwd=directory, **environ)


def wheel_in(directory: Path) -> Path:
    (found,) = directory.glob("*.whl")
    return found


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def install_and_send(wheel: Path, directory: Path) -> str:
    """Install a wheel apart, run a broker of it, send a message; return what served it."""
    target = directory / "installed"
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(target)]
    installed = run("-m", "pip", "install", *options, str(wheel), cwd=directory)
    assert installed.returncode == 0, installed.stderr
    environ = {"PYTHONPATH": str(target)}
    done = run("-c", WORKS, str(directory / "data"), cwd=directory, **environ)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("served ")]
    _, path, offset, imported = told.split()
    assert offset == "0"
    assert Path(imported).is_relative_to(target)
    version = run("-m", "rocketpy", "--version", cwd=directory, **environ)
    assert version.stdout.endswith(f"(plain sends: {path})\n")
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    done = run("-m", "hatchling", "build", "-t", "sdist", "-d", str(directory), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (found,) = directory.glob("*.tar.gz")
    return found


def test_source_distribution_has_all_that_is_needed_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert len(MODULES) == 5
    assert {f"{module}.pyx" for module in MODULES} <= names
    assert {"hatch_build.py", "pyproject.toml", "LICENSE", "README.md"} <= names
    built = {".so", ".c", ".pyc", ".o"}
    assert not [name for name in names if Path(name).suffix in built]
    assert not [name for name in names if name.startswith(("tests/", ".venv/", "bench/"))]


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    "is_stable",
    [
        pytest.param(False, id="this-python"),
        pytest.param(True, id="every-later-python", marks=pytest.mark.long),
    ],
)
def test_compiler_gives_a_compiled_wheel(sdist: Path, tmp_path: Path, is_stable: bool) -> None:
    stable = {"ROCKETPY_STABLE_ABI": "1"} if is_stable else {}
    done = build(sdist, tmp_path, ROCKETPY_COMPILED="1", **stable)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = wheel_in(tmp_path)
    this_python = f"-cp{sys.version_info.major}{sys.version_info.minor}-cp"
    assert ("-cp311-abi3-" if is_stable else this_python) in wheel.name
    ending = ".abi3.so" if is_stable else sysconfig.get_config_var("EXT_SUFFIX")
    names = files_of(wheel)
    for module in MODULES:
        assert [name for name in names if name.startswith(module)] == [f"{module}{ending}"]
        with zipfile.ZipFile(wheel) as archive:
            compiled = archive.read(f"{module}{ending}")
        for path in (ROOT, tempfile.gettempdir(), "rocketpy-build-"):
            assert os.fsencode(path) not in compiled, "no path of the place it was built in"
    assert install_and_send(wheel, tmp_path) == "compiled"


@pytest.mark.long
@pytest.mark.parametrize("absent", ["compiler", "path"])
def test_without_a_compiler_the_wheel_is_pure_and_works(
    sdist: Path, tmp_path: Path, absent: str
) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    environ = {"CC": "false"} if absent == "compiler" else {"PATH": str(nowhere)}
    done = build(sdist, tmp_path, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain sends are not compiled, RocketPy is pure" in done.stdout + done.stderr
    wheel = wheel_in(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in files_of(wheel) if name.startswith(MODULES)]
    assert install_and_send(wheel, tmp_path) == "python"


@pytest.mark.long
def test_pure_on_request_from_a_tree_with_a_compiled_module_in_it(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path, ROCKETPY_PURE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = wheel_in(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    names = files_of(wheel)
    assert not [name for name in names if name.endswith((".so", ".c", ".pyx", ".pxi", ".pyc"))]
    assert "rocketpy/py.typed" in names
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"rocketpy", "pyspark_rocketmq", "pyspark_rocketmq_store"}


def test_compiled_wheel_that_cannot_be_is_an_error(sdist: Path, tmp_path: Path) -> None:
    done = build(sdist, tmp_path, CC="false", ROCKETPY_COMPILED="1")
    assert done.returncode != 0
    assert "ROCKETPY_COMPILED=1, but sends cannot be compiled" in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.whl"))
