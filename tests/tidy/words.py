"""Counts words that docs/STYLE.md replaces, by file: `python -m tests.tidy.words` prints them.

`python -m tests.tidy.words --write` lowers the counts in words_allowed.json to those of today; a
count there never rises.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = Path(__file__).with_name("words_allowed.json")
PRIVATE_WORDS = re.compile(
    r"\b(whoever|whatever|nobody|somebody|anybody|as mostly|go(es)? on|gone on|went on"
    r"|in hand|at hand|told|tells|of (its|their|his) own|what (comes|came|is there|there is|stands)"
    r"|who|whom|sets? aside|pass(es|ed)? over|lets? go|puts? off|gives? back|hears? of"
    r"|is no such|are no such|cannot be meant|in passing|minds?|vouch(ed|es)?|anew"
    r"|has had enough|is taken for|takes? part)\b",
    re.IGNORECASE,
)
FREE_RELATIVE = re.compile(
    r"(What|Who|Whose|Whom|Whoever|Which|How|Where|When|That|Those|One|He|As)\b"
)
"""How a first line must not begin: it names the thing first."""
TEST_NAME = re.compile(
    r"test_(what|who|whose|whoever|nobody|somebody|of|that|which|where|whether|how|if|it|as|and|so)_"
)
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


def sources() -> list[Path]:
    """Return the files that are counted."""
    folders = (
        "rocketpy",
        "pyspark_rocketmq",
        "pyspark_rocketmq_store",
        "tests",
        "bench",
        "examples",
    )
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if path.parent != Path(__file__).parent]


def pages() -> list[Path]:
    """Return the documents that are counted."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    cython = [*(ROOT / "rocketpy").rglob("*.pyx"), *(ROOT / "rocketpy").rglob("*.pxi")]
    return [path for path in found if path.name != "STYLE.md"] + sorted(cython)


def prominent(path: Path) -> Iterator[str]:
    """Yield what readers meet first: first lines, log events, errors and names of tests.

    Args:
        path: a Python source.
    """
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if PRIVATE_WORDS.search(first) or FREE_RELATIVE.match(first):
                yield first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = node.name.replace("_", " ")
            is_test = node.name.startswith("test_")
            if is_test and (TEST_NAME.match(node.name) or PRIVATE_WORDS.search(words)):
                yield node.name
        for text in _messages(node):
            if PRIVATE_WORDS.search(text):
                yield text


def texts(path: Path) -> Iterator[str]:
    """Yield the private words of comments and strings, or of a whole page."""
    if path.suffix != ".py":
        yield from (match[0] for match in PRIVATE_WORDS.finditer(path.read_text()))
        return
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield from (match[0] for match in PRIVATE_WORDS.finditer(token.string))


def counts(kind: str) -> dict[str, int]:
    """Return the number of places by file; files without any are left out.

    Args:
        kind: "prominent" or "all".
    """
    if kind == "prominent":
        found = {str(p.relative_to(ROOT)): len([*prominent(p)]) for p in sources()}
    else:
        found = {str(p.relative_to(ROOT)): len([*texts(p)]) for p in [*sources(), *pages()]}
    return {name: count for name, count in found.items() if count}


def allowed() -> dict[str, dict[str, int]]:
    """Return the counts that words_allowed.json allows."""
    read: dict[str, dict[str, int]] = json.loads(ALLOWED.read_text())
    return read


def _messages(node: ast.AST) -> Iterator[str]:
    """Yield the texts of a log call or of a raised error."""
    calls: list[ast.Call] = []
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        calls.append(node.exc)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and "log" in ast.unparse(node.func.value).lower()
    ):
        calls.append(node)
    for call in calls:
        for argument in call.args:
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def main() -> None:
    """Print each place, or write the allow-list."""
    if "--write" in sys.argv:
        now = {kind: counts(kind) for kind in ("prominent", "all")}
        before = allowed() if ALLOWED.exists() else now
        lower = {
            kind: {k: min(n, before[kind][k]) for k, n in each.items() if k in before[kind]}
            for kind, each in now.items()
        }
        ALLOWED.write_text(json.dumps(lower, indent=0, sort_keys=True) + "\n")
        return
    wanted = [ROOT / each for each in sys.argv[1:]]
    for path in [*sources(), *pages()]:
        if wanted and not any(path.is_relative_to(each) for each in wanted):
            continue
        name = path.relative_to(ROOT)
        if path.suffix == ".py":
            for text in prominent(path):
                print(f"{name}: prominent: {text[:150]}")
        for text in texts(path):
            print(f"{name}: {text}")


if __name__ == "__main__":
    main()
