"""The programs of README and guide are as strict as the types that they are written with."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.snippets import GUIDE, ROOT, snippets


@pytest.mark.timeout(400)
def test_every_program_passes_mypy_strict(tmp_path: Path) -> None:
    names = []
    for page in (ROOT / "README.md", *sorted(GUIDE.glob("*.md"))):
        for each in snippets(page):
            if each.language == "python":
                names.append(tmp_path / f"{page.stem}_{each.line}.py".replace("-", "_"))
                names[-1].write_text(each.code, encoding="utf-8")
    # By the settings of `make check`, so that its cache spares reading the package again.
    # Without PySpark that costs a minute, because the cache is for other settings.
    more = [] if find_spec("pyspark") else ["--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *more, *map(str, names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert len(names) > 20
    assert done.returncode == 0, done.stdout + done.stderr
