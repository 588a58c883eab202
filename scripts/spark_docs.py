"""Writes the table of options into docs/spark.md from the options classes.

python scripts/spark_docs.py            # write it
python scripts/spark_docs.py --check    # exit code 1 when it is out of date
"""

# ruff: noqa: INP001 - not a package

import sys
from pathlib import Path

from rocketpy.spark.options import Option, options_of
from rocketpy.spark.read_options import BatchOptions, StreamOptions
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.store_source.options import StoreOptions

PAGE = Path(__file__).parent.parent / "docs" / "spark.md"
BEGIN, END = (
    "<!-- options: scripts/spark_docs.py writes this table -->\n",
    "<!-- end of options -->",
)

KINDS: dict[str, type] = {
    "batch": BatchOptions,
    "stream": StreamOptions,
    "write": SinkOptions,
    "store": StoreOptions,
}
"""Options classes by their word in the table."""


def table() -> str:
    """Return the table, with one row for each option."""
    found: dict[str, tuple[Option, list[str]]] = {}
    for kind, options in KINDS.items():
        for each in options_of(options):
            found.setdefault(each.name, (each, []))[1].append(kind)
    lines = ["| option | default | query | what it does |", "|---|---|---|---|"]
    for each, kinds in found.values():
        where = "all" if len(kinds) == len(KINDS) else ", ".join(kinds)
        names = f"`{each.name}`" + "".join(f" (or `{alias}`)" for alias in each.aliases)
        cells = (names, default_text(each), where, each.about.replace("|", "\\|"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def default_text(each: Option) -> str:
    """Return a default as users write it."""
    if each.shown:
        return each.shown
    if each.is_required:
        return "required"
    value = each.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        value = ",".join(value)
    return "none" if value is None or value == "" else f"`{value}`"


def render(page: str) -> str:
    """Return the page with a current table."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "\n" + table() + "\n" + END + after


def main() -> int:
    """Write the page, or with `--check` report whether it is up to date."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = render(page)
    if "--check" in sys.argv:
        return int(page != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
