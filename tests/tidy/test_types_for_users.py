"""What users see of the types, by the other checker: pyright says them all, and strictly."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _pyright(*arguments: str, folder: Path) -> dict[str, Any]:
    """Run it for this environment; its report."""
    path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *arguments],
        cwd=folder,
        env=os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": path},
        stdout=subprocess.PIPE,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_public_type_is_known(tmp_path: Path) -> None:
    # Types that come from libraries without any (pyarrow, PySpark) are not asked for.
    found = _pyright("--verifytypes", "rocketpy", "--ignoreexternal", folder=tmp_path)
    types = found["typeCompleteness"]
    assert types["exportedSymbolCounts"]["withKnownType"] > 5_000
    unknown = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in types["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
        for problem in symbol["diagnostics"]
    ]
    assert unknown == []
    assert types["completenessScore"] == 1


@pytest.mark.timeout(400)
def test_examples_pass_the_strict_rules() -> None:
    found = _pyright(folder=ROOT)
    assert found["summary"]["filesAnalyzed"] >= 8
    assert [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in found["generalDiagnostics"]
    ] == []


@pytest.mark.timeout(400)
def test_type_of_body_is_known_from_serializer() -> None:
    module = "tests/unit/client/messages/test_body_generics.py"
    found = _pyright(module, folder=ROOT)
    assert found["summary"]["filesAnalyzed"] == 1
    assert [each["message"] for each in found["generalDiagnostics"]] == []
