"""The table of a run."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.sdk.rows import CLIENTS, KAFKA, NATS, OURS, ROWS, Measured, Row

Rounds = Mapping[str, Mapping[str, Sequence[Measured]]]
"""By row and client."""


def cpu_us(rounds: Sequence[Measured]) -> float:
    """The median of rounds."""
    return median(each.cpu_us for each in rounds)


def table(rounds: Rounds, missing: Mapping[str, str]) -> str:
    """The table as Markdown.

    Args:
        rounds: what was measured.
        missing: why a client was not.
    """
    lines = [
        f"| client CPU a message, us | {KAFKA} | {NATS} | {OURS} | ours, at most |",
        "|---|---|---|---|---|",
    ]
    lines += [_line(row, rounds[row.key]) for row in ROWS if row.key in rounds]
    for client, reason in missing.items():
        lines += ["", f"Not measured here: {client} ({reason})."]
    return "\n".join(lines)


def _line(row: Row, of_row: Mapping[str, Sequence[Measured]]) -> str:
    cells = []
    for client in (KAFKA, NATS, OURS):
        cost_us = cpu_us(of_row[client]) if client in of_row else None
        cell = "-" if cost_us is None else f"{cost_us:.1f}"
        is_reached = client == OURS and cost_us is not None and cost_us <= row.goal_us
        cells.append(f"**{cell}**" if is_reached else cell)
    return f"| {row.name} | {' | '.join(cells)} | {row.goal_us:g} |"


def as_rounds(data: Mapping[str, Any]) -> dict[str, dict[str, list[Measured]]]:
    """Return the content of a results file."""
    return {
        row: {client: [Measured(**each) for each in of_client] for client, of_client in of.items()}
        for row, of in data["rounds"].items()
    }


def draw(data: Mapping[str, Any]) -> str:
    """Return the text of a document: table, and origin of its numbers."""
    return f"{table(as_rounds(data), data['missing'])}\n\n{data['about']}"


def about(options: Mapping[str, Any], versions: Mapping[str, str], commit: str) -> str:
    """Return a paragraph on the origin of the numbers."""
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"Processor time of the client's process, user and system, a message of 100 bytes; medians "
        f"of {options['rounds']} rounds, each in a separate process, {', '.join(CLIENTS)} in "
        f"turn; uvloop; load of the machine before {options['load']}; commit {commit}; {named}."
    )
