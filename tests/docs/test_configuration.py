import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("config_docs", ROOT / "scripts/config_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_says_what_the_dataclasses_say() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == script().render(), "run: python scripts/config_docs.py"


def test_notes_about_apache_belong_to_keys_that_are_there() -> None:
    page = script().render()
    for key in script().APACHE:
        assert f"| `{key}` |" in page
