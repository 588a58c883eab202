"""Writes the tables of docs/performance.md and of the README from results files.

    python -m bench.documents bench/results/2026-11-22-1600-0123abc.json [...]

A table stands between `<!-- bench: KIND FILES -->` and `<!-- end of bench -->`, so that no number
is typed by hand and everybody sees the run it comes from. Of several files of one kind, each row
comes from the last file that has it.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processes import ROOT
from bench.report import RESULTS, Run, from_data, short_table, table
from bench.sdk import report as sdk_report

__all__ = ["DOCUMENTS", "blocks", "draw", "kind_of", "write"]

DOCUMENTS: Final = (ROOT / "docs" / "performance.md", ROOT / "README.md")
_END: Final = "<!-- end of bench -->"
_BLOCK: Final = re.compile(rf"<!-- bench: (\S+)((?: \S+)*) -->\n(.*?){_END}", re.DOTALL)
_KINDS: Final = ("features", "ceiling", "further", "pairs", "sdk")
_SHORT: Final = "short"


def kind_of(path: Path) -> str:
    """Return the kind of a results file, by its name: one of `_KINDS`, or `table`."""
    return next((kind for kind in _KINDS if path.stem.endswith(f"-{kind}")), "table")


def blocks(text: str) -> list[tuple[str, list[str], str]]:
    """Yield the blocks of a document: kind, names of results files, text."""
    return [(kind, names.split(), inside) for kind, names, inside in _BLOCK.findall(text)]


def draw(kind: str, files: Sequence[Path], document: Path) -> str:
    """Return the text of a block.

    Args:
        kind: of the block.
        files: results, the older first.
        document: where it stands, for links.
    """
    stored = [json.loads(path.read_text()) for path in files]
    prefix = "../" if document.parent == ROOT / "docs" else ""
    links = ", ".join(f"[{path.stem}]({prefix}bench/results/{path.stem}.md)" for path in files)
    if kind == "further":
        return _further(stored) + f"\n\nRun: {links}.\n"
    if kind == "sdk":
        return sdk_report.draw(stored[-1]) + f"\n\nRun: {links}.\n"
    run = _joined([from_data(each) for each in stored])
    drawn = short_table(run) if kind == _SHORT else table(run)
    return f"{drawn}\n\nRun: {links}.\n"


def _joined(runs: Sequence[Run]) -> Run:
    whole = runs[0]
    for run in runs[1:]:
        whole.rounds |= run.rounds
        known = {each.key for each in whole.workloads}
        whole.workloads = [
            *whole.workloads,
            *(each for each in run.workloads if each.key not in known),
        ]
        whole.starts |= run.starts
        whole.idle_mib |= run.idle_mib
        whole.about = " ".join(dict.fromkeys((whole.about, run.about)))
    return whole


def _further(stored: Sequence[Mapping[str, Any]]) -> str:
    from bench.further import table as further_table  # noqa: PLC0415 - imports every load
    from bench.further.findings import Finding  # noqa: PLC0415

    findings: dict[str, list[Finding]] = {}
    for data in stored:
        findings |= {
            key: [Finding(**each) for each in found] for key, found in data["findings"].items()
        }
    abouts = dict.fromkeys(data["about"] for data in stored)
    return further_table(findings) + "\n\n" + " ".join(abouts)


def write(files: Sequence[Path], documents: Sequence[Path] = DOCUMENTS) -> list[str]:
    """Write the blocks of the documents that show the files; returns the written ones."""
    written = []
    for document in documents:
        text = document.read_text()
        for kind, _, _ in blocks(text):
            wanted = "table" if kind == _SHORT else kind
            chosen = sorted(path for path in files if kind_of(path) == wanted)
            if not chosen:
                continue
            names = " ".join(path.name for path in chosen)
            begin = f"<!-- bench: {kind} {names} -->\n"
            block = begin + draw(kind, chosen, document) + _END
            found = re.search(rf"<!-- bench: {kind}(?: \S+)* -->\n.*?{_END}", text, re.DOTALL)
            assert found is not None
            text = text[: found.start()] + block + text[found.end() :]
            written.append(f"{document.name}: {kind} from {names}")
        document.write_text(text)
    return written


def main() -> int:
    """Write the blocks of the named files."""
    files = [RESULTS / Path(name).name for name in sys.argv[1:] if not name.startswith("-")]
    if not files:
        print(__doc__)
        return 0 if "--help" in sys.argv[1:] else 2
    print("\n".join(write(files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
