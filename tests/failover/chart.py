"""Draws the times without an acknowledged message of stored rounds, as SVG and as a table.

python -m tests.failover.chart tests/failover/gaps.json
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

CHART = Path(__file__).parents[2] / "docs" / "images" / "failover-gaps.svg"
DATA = Path(__file__).with_name("gaps.json")
Gaps = Mapping[str, Mapping[str, Sequence[float]]]

_SIDES = (
    ("ours", "RocketPy", "#1f6feb"),
    ("etcd", "RocketPy, controllers with etcd", "#2da44e"),
    ("apache", "Apache 5.4.0", "#d1570c"),
)
_LABELS, _WIDTH, _ROW, _TOP = 290, 520, 17, 46
_LOWEST_S, _HIGHEST_S = 0.01, 100.0
_FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#24292f"'


def kinds_of(data: Gaps) -> list[str]:
    """Return the kinds of rounds, by their longest times."""
    kinds = {kind for side, _, _ in _SIDES for kind in data[side]}

    def longest_s(kind: str) -> float:
        return max(max(data[side].get(kind, [0.0])) for side, _, _ in _SIDES)

    return sorted(kinds, key=lambda kind: (longest_s(kind), kind))


def draw(data: Gaps) -> str:
    """Return the chart: a dot for each round, a line at the median."""
    kinds = kinds_of(data)
    width, bottom = _LABELS + _WIDTH + 24, _TOP + _ROW * len(kinds)
    size = f'width="{width}" height="{bottom + 26}" viewBox="0 0 {width} {bottom + 26}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_FONT}>',
        "<title>Longest time without an acknowledged message, by fault</title>",
        f'<rect width="{width}" height="{bottom + 26}" rx="6" fill="#ffffff"/>',
        *_axis(bottom),
    ]
    x = _LABELS
    for _, name, color in _SIDES:
        lines.append(f'<circle cx="{x}" cy="17" r="4" fill="{color}"/>')
        lines.append(f'<text x="{x + 8}" y="21">{name}</text>')
        x += 24 + 7 * len(name)
    for number, kind in enumerate(kinds):
        y = _TOP + _ROW * number + _ROW // 2
        lines.append(f'<text x="{_LABELS - 8}" y="{y + 4}" text-anchor="end">{kind}</text>')
        for side, _, color in _SIDES:
            lines += _dots(data[side].get(kind, ()), y, color)
    return "\n".join([*lines, "</svg>"]) + "\n"


def table(data: Gaps) -> str:
    """Return the medians and the longest times of all sides."""
    lines = [
        "| fault | rounds | median, s | longest, s | Apache: rounds | median, s | longest, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in reversed(kinds_of(data)):
        ours = [*data["ours"].get(kind, ()), *data["etcd"].get(kind, ())]
        lines.append(f"| `{kind}` | {_cells(ours)} | {_cells(data['apache'].get(kind, ()))} |")
    return "\n".join(lines)


def _cells(gaps: Sequence[float]) -> str:
    return f"{len(gaps)} | {median(gaps):.2f} | {max(gaps):.2f}" if gaps else " |  | "


def _axis(bottom: int) -> Iterator[str]:
    for seconds, text in ((0.01, "10 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"),
                          (100.0, "100 s")):  # fmt: skip
        x = _x(seconds)
        yield f'<line x1="{x}" y1="{_TOP - 4}" x2="{x}" y2="{bottom}" stroke="#d0d7de"/>'
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{text}</text>'


def _dots(gaps: Sequence[float], y: int, color: str) -> Iterator[str]:
    for each in gaps:
        yield f'<circle cx="{_x(each)}" cy="{y}" r="3" fill="{color}" fill-opacity="0.6"/>'
    if gaps:
        ends = f'x1="{_x(median(gaps))}" y1="{y - 6}" x2="{_x(median(gaps))}" y2="{y + 6}"'
        yield f'<line {ends} stroke="{color}" stroke-width="2"/>'


def _x(seconds: float) -> int:
    span = math.log(_HIGHEST_S / _LOWEST_S)
    share = math.log(min(_HIGHEST_S, max(_LOWEST_S, seconds)) / _LOWEST_S) / span
    return _LABELS + round(_WIDTH * share)


def main() -> None:
    """Draw the chart of a file, and print its table."""
    data = json.loads(Path(sys.argv[1]).read_text())
    CHART.write_text(draw(data))
    print(table(data))


if __name__ == "__main__":
    main()
