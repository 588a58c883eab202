"""Draws what `make demo-spark` found: one PNG a chart, and a page that holds them all."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

INK, MUTED, GRID, BAR, LATE = "#1f2933", "#6b7785", "#e4e8ec", "#3b6ea5", "#c8553d"
mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


def across(rows: Rows, by: str, title: str, path: Path) -> None:
    """Bars from left to right, longest first, with the number of flights beside each name."""
    ordered = sorted(rows, key=lambda row: row["mean_delay"])
    names = [f"{row[by]}  ({row['flights']:,})" for row in ordered]
    values = [row["mean_delay"] for row in ordered]
    figure = Figure(figsize=(8, 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(names, values, color=BAR, height=0.7)
    axes.bar_label(bars, fmt="%.1f", padding=4, color=MUTED)
    low, high = min(0, *values), max(1, *values)
    room = (high - low) * 0.1  # for a bar's own number
    axes.set_xlim(low - room if low < 0 else 0, high + room)
    axes.margins(y=0.02)
    finish(figure, axes, title, "mean delay at departure, minutes", path, "x")


def upright(rows: Rows, by: str, title: str, label: str, path: Path) -> None:
    """Bars of the mean, and the 90th percentile as a line above them."""
    places = [str(row[by]) for row in rows]
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(places, [row["mean_delay"] for row in rows], color=BAR, width=0.75, label="mean")
    nineties = [row["p90_delay"] for row in rows]
    axes.plot(places, nineties, color=LATE, marker="o", markersize=4, label="one in ten is later")
    axes.set_ylim(min(0, *(row["mean_delay"] for row in rows)) * 1.3, max(1, *nineties) * 1.3)
    axes.legend(frameon=False, loc="upper left", ncols=2)
    axes.set_xlabel(label)
    finish(figure, axes, title, "delay at departure, minutes", path, "y")


def finish(figure: Figure, axes: Axes, title: str, label: str, path: Path, grid: str) -> None:
    """Give a chart its title, its axis and a quiet grid, and write it."""
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=12)
    (axes.set_xlabel if grid == "x" else axes.set_ylabel)(label)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    figure.savefig(path, dpi=144)


CHARTS = {
    "carrier": "Delay by carrier",
    "hour": "Delay by hour of the day",
    "weather": "Delay by weather at the airport of departure",
    "age": "Delay by age of the plane",
}
STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; color: {INK}; margin: 2.5rem auto; max-width: 62rem;
       padding: 0 1.25rem; background: #fff }}
h1 {{ font-size: 1.6rem; margin: 0 0 .25rem }} h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .6rem }}
p {{ color: {MUTED}; margin: .2rem 0 1rem; max-width: 44rem }}
.facts {{ display: grid; grid-template-columns: repeat(4, 1fr); gap: .75rem; margin: 1.2rem 0 }}
.facts div {{ border: 1px solid {GRID}; border-radius: 6px; padding: .7rem .9rem }}
.facts b {{ display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }}
.facts span {{ color: {MUTED}; font-size: .82rem }}
img {{ width: 100%; max-width: 50rem; display: block }}
table {{ border-collapse: collapse; margin: .6rem 0 0; font-size: .88rem }}
th, td {{ text-align: right; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid {GRID};
          font-variant-numeric: tabular-nums }}
th:first-child, td:first-child {{ text-align: left }} th {{ color: {MUTED}; font-weight: 600 }}
summary {{ color: {MUTED}; cursor: pointer; margin-top: .5rem }}
"""


def write(folder: Path, facts: Mapping[str, int], results: Mapping[str, Rows]) -> Path:
    """Draw everything into a folder; return the page, which needs no other file.

    Args:
        folder: it is made when it is not there.
        facts: numbers of the run by what they are.
        results: rows by report: `carrier`, `hour`, `weather`, `age`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    across(results["carrier"], "airline", CHARTS["carrier"], folder / "carrier.png")
    hours = [row for row in results["hour"] if row["flights"] > 1]
    upright(hours, "hour", CHARTS["hour"], "scheduled hour of departure", folder / "hour.png")
    across(results["weather"], "weather", CHARTS["weather"], folder / "weather.png")
    steps = "years, in steps of five; the last one: 30 and more"
    upright(results["age"], "age", CHARTS["age"], steps, folder / "age.png")
    page = folder / "report.html"
    page.write_text(html_of(folder, facts, results), encoding="utf-8")
    return page


def html_of(folder: Path, facts: Mapping[str, int], results: Mapping[str, Rows]) -> str:
    """The page, with its charts inside."""
    boxes = "".join(
        f"<div><b>{value:,}</b><span>{html.escape(name)}</span></div>"
        for name, value in facts.items()
    )
    parts = []
    for name, title in CHARTS.items():
        image = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
        parts.append(
            f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{image}">'
            f"<details><summary>the numbers</summary>{table_of(results[name])}</details>"
        )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Departures from New York, 2013</title><style>{STYLE}</style>"
        "<h1>Departures from New York, 2013</h1>"
        "<p>Published to a topic, streamed into Parquet by Spark, which was killed half way and "
        "started again; joined with weather and planes; the results are messages, too. Messages "
        "and rows are counted by pyarrow, from the files of the store and of the table.</p>"
        f'<div class="facts">{boxes}</div>{"".join(parts)}</html>'
    )


def table_of(rows: Rows) -> str:
    """Rows as a table."""
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def shown(value: object) -> str:
    """A cell."""
    return f"{value:,}" if isinstance(value, int | float) else str(value)
