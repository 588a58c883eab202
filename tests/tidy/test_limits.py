"""Limits on the size of files, functions and folders, and rules about what sources may contain."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = sorted(ROOT.glob("rocketpy/**/*.py"))
TESTS = sorted(ROOT.glob("tests/**/*.py"))
FILE_LINES_MAX = 600
SHORT_LINES = 60
SHORT_MODULES = Path(__file__).with_name("short_modules.txt")
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 15
"""Modules of one folder of the package, its `__init__.py` not counted."""
UNFINISHED = re.compile(r"\b(FIX" + r"ME|TO" + r"DO|XX" + r"X)\b(?!X)|NotImplemented" + r"Error")
SWALLOWED = re.compile(r"except[^:\n]*:\s*(#[^\n]*)?\n\s*pass\b")
SLEEPS = re.compile(r"\b(time|asyncio)\.sleep\((?!0\))")


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


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


def test_files_exceeding_the_line_limit_are_none() -> None:
    lines = {name(path): text_of(path).count("\n") for path in (*PACKAGE, *TESTS)}
    assert len(lines) > 900
    assert {file: count for file, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_short_modules_have_a_reason() -> None:
    rows = [line for line in text_of(SHORT_MODULES).splitlines() if not line.startswith("#")]
    reasons = dict(row.split(": ", 1) for row in rows)
    short = {
        name(path)
        for path in PACKAGE
        if path.name != "__init__.py" and text_of(path).count("\n") < SHORT_LINES
    }
    assert all(reasons.values())
    assert set(reasons) == short


def test_functions_exceeding_the_line_limit_are_none() -> None:
    too_long = [
        f"{name(path)}:{each.lineno} {each.name}: {code_lines(each)} lines"
        for path in (*PACKAGE, *TESTS)
        for each in functions(tree_of(path))
        if code_lines(each) > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_folders_exceeding_the_module_limit_are_none() -> None:
    counts = Counter(name(path.parent) for path in PACKAGE if path.name != "__init__.py")
    assert len(counts) > 30
    assert {folder: n for folder, n in counts.items() if n > FOLDER_MODULES_MAX} == {}


def test_unfinished_code_and_swallowed_exceptions_are_none() -> None:
    found = [
        f"{name(path)}: {match.group()}"
        for path in PACKAGE
        for rule in (UNFINISHED, SWALLOWED)
        for match in rule.finditer(text_of(path))
    ]
    assert found == []


def test_public_modules_functions_and_classes_without_docstring_are_none() -> None:
    bare = [name(path) for path in PACKAGE if not ast.get_docstring(tree_of(path))]
    bare += [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in PACKAGE
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert bare == []


def test_unit_tests_that_sleep_are_none() -> None:
    unit = sorted(ROOT.glob("tests/unit/**/*.py"))
    assert [name(path) for path in unit if SLEEPS.search(text_of(path))] == []


def test_threads_start_in_named_places_only() -> None:
    allowed = {
        "rocketpy/remoting/network/socket_network.py",
        "rocketpy/remoting/business_pool.py",
        "rocketpy/runtime/service.py",
        "rocketpy/remoting/http_listener.py",  # answers while the loop of the server is busy
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
