"""Draws the chart of the README: message rates of a stored run beside Apache's, as SVG.

    python -m bench.chart bench/results/2026-11-26-0858-5b20a6b.json

The file names its run in a comment, so that a test can draw it again.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processes import ROOT
from bench.report import OURS, PURE, RESULTS, Rounds, from_data, ratio

__all__ = ["CHART", "draw", "run_of"]

CHART: Final = ROOT / "docs" / "images" / "beside-apache.svg"
_RUN: Final = re.compile(r"<!-- run: (\S+) -->")
_SIDES: Final = ((OURS, "compiled", "#1f6feb"), (PURE, "pure Python", "#8ab4f8"))
_LABELS: Final = 290
_UNIT: Final = 150
"""Pixels for Apache's rate."""
_NEAR: Final = 0.8
_BAR: Final = 11
_ROW: Final = 34
_TOP: Final = 52
_FONT: Final = 'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#24292f"'


def draw(data: Mapping[str, Any], name: str) -> str:
    """Return the chart of a stored run.

    Args:
        data: what its JSON file holds.
        name: of that file.
    """
    run = from_data(data)
    rows = [each.name for each in run.workloads if not each.is_latency]
    ratios = {row: _ratios(run.rounds, row) for row in rows}
    highest = max(value for values in ratios.values() for value in values)
    width = _LABELS + round(highest * _UNIT) + 56
    height = _TOP + _ROW * len(rows) + 28
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {_size(width, height)} {_FONT}>',
        f"<!-- run: {name} -->",
        "<title>Message rates of RocketPy beside Apache RocketMQ 5.4.0</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, row in enumerate(rows):
        lines += _bars(row, ratios[row], _TOP + _ROW * number)
    apache = _LABELS + _UNIT
    bottom = _TOP + _ROW * len(rows)
    lines += [
        f'<line x1="{apache}" y1="{_TOP - 8}" x2="{apache}" y2="{bottom}" stroke="#24292f"/>',
        f'<text x="{apache}" y="{bottom + 16}" text-anchor="middle">Apache = 1</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _size(width: int, height: int) -> str:
    return f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'


def _ratios(rounds: Rounds, row: str) -> list[float]:
    found = [ratio(rounds[row], side, "apache", "per_s") for side, _, _ in _SIDES]
    return [value for value in found if value is not None]


def _legend() -> list[str]:
    lines = ['<text x="16" y="26" font-weight="bold">Messages per second, Apache = 1</text>']
    for number, (_, label, color) in enumerate(_SIDES):
        x = _LABELS + 110 * number
        lines.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{color}"/>')
        lines.append(f'<text x="{x + 18}" y="26">{label}</text>')
    return lines


def _bars(row: str, ratios: Sequence[float], y: int) -> list[str]:
    lines = [f'<text x="{_LABELS - 10}" y="{y + 16}" text-anchor="end">{row}</text>']
    for number, value in enumerate(ratios):
        color = _SIDES[number][2]
        length, top = round(value * _UNIT), y + 1 + number * (_BAR + 1)
        lines.append(
            f'<rect x="{_LABELS}" y="{top}" width="{length}" height="{_BAR}" fill="{color}"/>'
        )
        # A label of a bar that ends just before Apache's line is written behind that line.
        x = _LABELS + max(length, _UNIT if value > _NEAR else 0) + 6
        lines.append(f'<text x="{x}" y="{top + 10}" font-size="11">{value:.2f}</text>')
    return lines


def run_of(chart: str) -> str:
    """Return the name of the file that a chart was drawn from."""
    found = _RUN.search(chart)
    assert found is not None
    return found[1]


def main() -> int:
    """Draw the run that is named; its file is below bench/results."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    name = Path(sys.argv[1]).name
    CHART.write_text(draw(json.loads((RESULTS / name).read_text()), name))
    print(f"{CHART.relative_to(ROOT)} from {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
