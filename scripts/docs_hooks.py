"""What mkdocs does to each page: a link that leads out of docs/ becomes the name of its file."""

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page that go above docs/."""
    above = page.file.src_uri.count("/") + 1

    def name(found: re.Match[str]) -> str:
        text, ups, path = found.groups()
        if ups.count("../") < above:
            return found[0]
        return f"`{path}`" if text == path else f"{text} (`{path}`)"

    return _LINK.sub(name, markdown)
