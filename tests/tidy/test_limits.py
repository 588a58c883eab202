"""Files and functions stay small, nothing is unfinished, unit tests never sleep."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted(ROOT.glob("rocketpy/**/*.py"))
TESTS = sorted(ROOT.glob("tests/**/*.py"))
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
UNFINISHED = re.compile(r"\b(FIX" + r"ME|TO" + r"DO|XX" + r"X)\b(?!X)|NotImplemented" + r"Error")
SWALLOWED = re.compile(r"except[^:\n]*:\s*(#[^\n]*)?\n\s*pass\b")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    docstring = ast.get_docstring(function, clean=False)
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    return lines - (docstring.count("\n") + 1 if docstring else 0)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PACKAGE, *TESTS], ids=name)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    too_long = [f.name for f in functions(ast.parse(text)) if code_lines(f) > FUNCTION_LINES_MAX]

    assert text.count("\n") <= FILE_LINES_MAX
    assert not too_long


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_nothing_is_unfinished_or_swallowed(path: Path) -> None:
    text = path.read_text()

    assert not UNFINISHED.search(text)
    assert not SWALLOWED.search(text)


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_every_public_thing_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    bare = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]

    assert ast.get_docstring(tree)
    assert not bare


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/unit/**/*.py")), ids=name)
def test_unit_tests_never_sleep(path: Path) -> None:
    assert not re.search(r"\b(time|asyncio)\.sleep\((?!0\))", path.read_text())


def test_threads_start_in_named_places_only() -> None:
    allowed = {
        "rocketpy/remoting/network/socket_network.py",
        "rocketpy/remoting/business_pool.py",
        "rocketpy/runtime/service.py",
        # acknowledgements are seen to while a task waits for its next rows
        "rocketpy/spark/sink/worker.py",
        "rocketpy/client/blocking/loop_thread.py",  # the blocking face of the client owns one
        "rocketpy/testing/cluster.py",  # a cluster beside a synchronous test
        "rocketpy/terminal/completion.py",  # a look-up of a host cannot be ended
    }
    starters = {name(path) for path in PACKAGE if re.search(r"\bThread\(", path.read_text())}

    assert starters <= allowed


def test_no_machine_paths_or_registry_hosts() -> None:
    host = re.compile(
        r"pypi\.org|files\.pythonhosted|repo1?\.maven|registry\.npmjs|proxy\.golang|crates\.io|deb\.debian"
    )
    here = Path(__file__)
    folders = ("rocketpy", "tests", "bench", "examples", "docs", "scripts", "conf")
    files = [
        p
        for folder in folders
        for p in ROOT.glob(f"{folder}/**/*")
        if p.suffix in {".py", ".md", ".sh", ".toml", ".conf"}
    ]
    found = [name(path) for path in files if path != here and host.search(path.read_text())]

    assert not found
