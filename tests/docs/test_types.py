"""The programs of README and guide are as strict as the types that they are written with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import GUIDE, ROOT, snippets


@pytest.mark.timeout(400)
def test_every_program_passes_mypy_strict(tmp_path: Path) -> None:
    names = []
    for page in (ROOT / "README.md", *sorted(GUIDE.glob("*.md"))):
        for each in snippets(page):
            if each.language == "python":
                names.append(f"{page.stem}_{each.line}.py".replace("-", "_"))
                (tmp_path / names[-1]).write_text(each.code, encoding="utf-8")
    # What is not installed has no types; rocketpy itself is checked elsewhere.
    more = ["--ignore-missing-imports", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", "--strict", *more]
    done = subprocess.run(
        [*command, *names],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(names) > 20
    assert done.returncode == 0, done.stdout + done.stderr
