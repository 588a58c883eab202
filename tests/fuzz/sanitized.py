"""Compiled modules built with AddressSanitizer and UndefinedBehaviorSanitizer, and their process.

The interpreter is not built with them, so their libraries are loaded before it; with
PYTHONMALLOC=malloc every object, and every file of a simulated disk, is a block they watch.
"""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
SENDS = "rocketpy.broker.fast_path._plain_sends"
ROWS = "rocketpy.arrow._rows"
CLIENT_SENDS = "rocketpy.proto.wire._sends"
MESSAGES = "rocketpy.client.messages._messages"
RECORDS = "rocketpy.store.recovery._plain_records"
_LIBRARIES = ("libasan.so", "libubsan.so")
_FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-O1",
    "-g",
    "-fPIC",
    "-shared",
)


def environment(compiler: list[str]) -> dict[str, str]:
    """Return the environment in which the module can be loaded."""
    libraries = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in _LIBRARIES
    ]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONFAULTHANDLER": "",
        "ROCKETPY_PURE": "",
    }


def runs_here(env: dict[str, str]) -> str:
    """Try an interpreter under the sanitizers; return what it says when it does not run."""
    done = subprocess.run(
        [sys.executable, "-c", "import zlib, asyncio"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # A library that cannot be loaded before a program is a warning of the loader's, no failure.
    return done.stderr.strip() or (f"exit code {done.returncode}" if done.returncode else "")


def build(compiler: list[str], directory: Path, name: str) -> Path:
    """Compile a module, given by its full name, into a directory.

    Raises:
        subprocess.CalledProcessError: Cython or the compiler refuses it; they say why.
    """
    last = name.rpartition(".")[2]
    c_file, module = directory / f"{last}.c", directory / f"{last}.so"
    source = f"{name.replace('.', '/')}.pyx"
    cython = [sys.executable, "-m", "cython", "-3", source, "-o", str(c_file)]
    subprocess.run(cython, cwd=ROOT, check=True)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([*compiler, *_FLAGS, include, str(c_file), "-o", str(module)], check=True)
    return module


def load(name: str, path: str) -> None:
    """Make the module of a file the one that is found under a name."""
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
