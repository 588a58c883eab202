"""Pictures of a run: bars for a terminal, one HTML page that needs nothing else."""

import html
from collections.abc import Mapping, Sequence
from typing import Final

from rocketpy.cli.measure.figures import Figures

__all__ = ["bars", "page"]

_BAR: Final = 40
_ROWS: Final = 12
_POINTS: Final = 120
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 220, 64, 28
_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:right}"
    "th{text-align:left;font-weight:normal;color:#555}svg{display:block;margin:1rem 0}"
)


def latency_text(time_us: int) -> str:
    """Return a time with three digits at most and its unit.

    Example:
        >>> latency_text(512), latency_text(2048), latency_text(4_194_304)
        ('512 us', '2.05 ms', '4.19 s')
    """
    if time_us < 1_000:
        return f"{time_us} us"
    if time_us < 1_000_000:
        return f"{time_us / 1_000:.3g} ms"
    return f"{time_us / 1_000_000:.3g} s"


def bars(figures: Figures) -> str:
    """Draw rate over time and latencies as bars of plain characters."""
    rates = figures.rates(_ROWS)
    spread = figures.latencies.spread()
    parts = ["messages a second, by time"]
    parts += _bars([(f"{end_s:.1f} s", rate, f"{rate:,.0f}") for end_s, rate in rates])
    parts += ["", "messages, by latency up to"]
    parts += _bars([(latency_text(end_us), count, f"{count:,}") for end_us, count in spread])
    return "\n".join(parts)


def _bars(rows: Sequence[tuple[str, float, str]]) -> list[str]:
    most = max((value for _, value, _ in rows), default=0) or 1
    width = max((len(name) for name, _, _ in rows), default=0)
    return [
        f"  {name.rjust(width)} {('#' * max(round(value / most * _BAR), value > 0)).ljust(_BAR)} "
        f"{text}"
        for name, value, text in rows
    ]


def page(title: str, runs: Sequence[tuple[Mapping[str, object], Figures]]) -> str:
    """Return an HTML page with the figures, rate over time and latencies of each run.

    Args:
        title: of the page.
        runs: what is shown of each run, and its figures.
    """
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>",
    ]
    for row, figures in runs:
        parts.append("<table>")
        for name, value in row.items():
            text = f"{value:,}" if isinstance(value, int | float) else str(value)
            parts.append(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>")
        parts += ["</table>", _line(figures), _columns(figures)]
    return "\n".join([*parts, "</body></html>", ""])


def _frame(title: str, top: str, drawn: Sequence[str]) -> str:
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    floor = _HEIGHT - _BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="11">',
            f"<title>{html.escape(title)}</title>",
            f'<text x="{_LEFT}" y="12">{html.escape(title)}</text>',
            f'<text x="{_LEFT - 6}" y="30" text-anchor="end">{html.escape(top)}</text>',
            f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end">0</text>',
            f'<path d="M{_LEFT} 22V{floor}H{_WIDTH - 8}" fill="none" stroke="#999"/>',
            *drawn,
            "</svg>",
        ]
    )


def _line(figures: Figures) -> str:
    rates = figures.rates(_POINTS)
    most = max((rate for _, rate in rates), default=0) or 1
    last_s = rates[-1][0] if rates else 1
    floor = _HEIGHT - _BOTTOM
    across, up = (_WIDTH - 8 - _LEFT) / last_s, (floor - 26) / most
    points = " ".join(
        f"{_LEFT + end_s * across:.1f},{floor - rate * up:.1f}" for end_s, rate in rates
    )
    drawn = [
        f'<polyline points="{points}" fill="none" stroke="#2a6f97" stroke-width="2"/>',
        f'<text x="{_WIDTH - 8}" y="{floor + 16}" text-anchor="end">{last_s:.1f} s</text>',
    ]
    return _frame("messages a second", f"{most:,.0f}", drawn)


def _columns(figures: Figures) -> str:
    spread = figures.latencies.spread()
    most = max((count for _, count in spread), default=0) or 1
    floor = _HEIGHT - _BOTTOM
    width = (_WIDTH - 8 - _LEFT) / max(1, len(spread))
    drawn = []
    for at, (end_us, count) in enumerate(spread):
        height = count / most * (floor - 26)
        x = _LEFT + at * width
        drawn.append(
            f'<rect x="{x + 1:.1f}" y="{floor - height:.1f}" width="{max(1.0, width - 2):.1f}" '
            f'height="{height:.1f}" fill="#2a6f97">'
            f"<title>up to {latency_text(end_us)}: {count:,}</title></rect>"
        )
        drawn.append(
            f'<text x="{x + width / 2:.1f}" y="{floor + 16}" text-anchor="middle">'
            f"{latency_text(end_us)}</text>"
        )
    return _frame("messages, by latency up to", f"{most:,}", drawn)
