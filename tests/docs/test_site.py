"""The site's navigation has every page, and every link leads somewhere; mkdocs is not needed."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CODE = re.compile(r"^(```.*?^```$|(?: {4}|\t).*?$)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def named(entry: object) -> Iterator[str]:
    """The pages that an entry of the navigation names."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from named(list(entry.values()))
    elif isinstance(entry, list):
        for each in entry:
            yield from named(each)


def anchors(page: Path) -> set[str]:
    """The headings of a page as mkdocs names them in addresses."""
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        kept = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", kept))
    return found


def test_navigation_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = list(named(site["nav"]))
    assert sorted(pages) == [str(page.relative_to(DOCS)) for page in PAGES]
    assert len(set(pages)) == len(pages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_api_page_names_existing_objects() -> None:
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "guide/api.md").read_text(), re.MULTILINE)
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        found = importlib.import_module(module)
        if not hasattr(found, attribute):
            importlib.import_module(name)
