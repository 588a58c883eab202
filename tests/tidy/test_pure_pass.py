"""tests/pure_pass.txt names the tests of every module that has a compiled twin.

`make test` runs these tests a second time, in pure Python.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = [Path(line) for line in (ROOT / "tests" / "pure_pass.txt").read_text().split()]
CALL = re.compile(r"\bload_compiled\(")


def callers() -> list[Path]:
    """Return the modules that load a compiled module, as paths below rocketpy/."""
    package = ROOT / "rocketpy"
    found = [path for path in package.rglob("*.py") if CALL.search(path.read_text())]
    return sorted(path.relative_to(package) for path in found)


def test_pure_pass_paths_exist_in_order() -> None:
    assert [path for path in PATHS if not (ROOT / path).exists()] == []
    assert sorted(map(str, PATHS)) == list(map(str, PATHS))


def test_every_compiled_source_has_a_caller() -> None:
    text = "".join((ROOT / "rocketpy" / path).read_text() for path in callers())
    sources = (ROOT / "rocketpy").rglob("*.pyx")
    assert [path.name for path in sources if f'.{path.stem}"' not in text] == []


@pytest.mark.parametrize("module", callers(), ids=str)
def test_pure_pass_has_the_unit_tests_of_callers(module: Path) -> None:
    own = Path("tests", "unit", module.parent, f"test_{module.name}")
    assert {own, *own.parents} & set(PATHS), f"add {own} or its folder to tests/pure_pass.txt"
