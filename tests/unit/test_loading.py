"""Import of the client: at the first use of a public name."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rocketpy

IN_A_LOOP = """
import asyncio, sys
import rocketpy

async def main():
    before = set(sys.modules)
    async with rocketpy.connect("127.0.0.1:1", group="g") as client:
        client.producer()
        for make in (client.consumer, client.pop_consumer):
            make("t", group="c")
        client.pull_consumer(group="p")
        rocketpy.ToDLQ, rocketpy.errors.ClosedError
    print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""


def printed_by(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["from rocketpy import connect", "import rocketpy.sync"])
def test_client_imported_before_the_loop_imports_nothing_inside_it(first: str) -> None:
    assert printed_by("-c", f"{first}\n{IN_A_LOOP}") == "[]"


@pytest.mark.parametrize(
    ("statement", "is_loaded"),
    [
        ("import rocketpy", False),
        ("import rocketpy; rocketpy.connect", True),
        ("from rocketpy import connect", True),
        ("from rocketpy.sync import connect", True),
        ("import rocketpy.otel", False),
        ("from rocketpy.errors import ClosedError", False),
        ("import rocketpy.cli.main", False),
        ("import rocketpy.testing.plugin", False),
        ("import rocketpy.spark", False),
        ("from rocketpy.proto import wire", False),
    ],
)
def test_import_loads_the_client_if_a_client_name_is_used(
    statement: str, *, is_loaded: bool
) -> None:
    show = "import sys; print('rocketpy.client.client' in sys.modules)"
    assert printed_by("-c", f"{statement}; {show}") == str(is_loaded)


def test_package_lists_and_imports_each_public_name() -> None:
    assert set(dir(rocketpy)) == set(rocketpy.__all__)  # type: ignore[attr-defined]
    for name in rocketpy.__all__:  # type: ignore[attr-defined]
        assert getattr(rocketpy, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'connct'"):
        rocketpy.connct  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "statement", ["import rocketpy.arrow", "rocketpy.store.to_arrow('.')", "import rocketpy.otel"]
)
def test_missing_extra_is_an_error_with_its_name(statement: str) -> None:
    """Modules that are None count as missing."""
    shown = printed_by(
        "-c",
        "import sys, rocketpy.store\n"
        "sys.modules.update(dict.fromkeys(('pyarrow', 'opentelemetry')))\n"
        f"try:\n    {statement}\n"
        "except ModuleNotFoundError as error: print(error)",
    )
    assert re.fullmatch(r"rocketpy\.\w+ needs \w+: pip install 'rocketpy-mq\[\w+\]'", shown)


def test_names_of_packages_are_not_replaced_by_their_modules() -> None:
    """Importing a submodule sets it as an attribute of its package, over a function so named."""
    walked = pkgutil.walk_packages(rocketpy.__path__, "rocketpy.")
    packages = [importlib.import_module(found.name) for found in walked if found.ispkg]
    replaced = {
        f"{package.__name__}.{module.name}"
        for package in (rocketpy, *packages)
        for module in pkgutil.iter_modules(package.__path__)
        if module.name in defined_or_exported(package)
    }
    assert replaced == {"rocketpy.errors"}  # exported as the module that it is


def defined_or_exported(package: ModuleType) -> set[str]:
    source = ast.parse(Path(package.__file__ or "").read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in source.body if isinstance(node, functions)}
    return defined | set(getattr(package, "__all__", ()))


def test_command_line_does_not_load_the_client() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rocketpy", "--version"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "rocketpy.cli.main" in done.stderr
    assert "rocketpy.client.client" not in done.stderr


def test_error_that_is_looked_up_in_the_package_is_named_with_its_module() -> None:
    with pytest.raises(AttributeError, match=r"this one as rocketpy\.errors\.BrokerError$"):
        _ = rocketpy.BrokerError  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'NoSuchError'$"):
        _ = rocketpy.NoSuchError  # type: ignore[attr-defined]
