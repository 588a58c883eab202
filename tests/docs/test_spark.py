"""The page about Spark says what the options classes say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_docs", ROOT / "scripts/spark_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_of_options_is_that_of_the_classes() -> None:
    pytest.importorskip("pyarrow")
    page = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
    assert page == script().render(page), "run: python scripts/spark_docs.py"
