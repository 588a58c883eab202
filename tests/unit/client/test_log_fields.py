"""Log records of the client: a constant text with named values, so that they can be grouped."""

import ast
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from rocketpy.errors import ConnectError
from tests.unit.client.sim import Cluster, pass_time, run_sim

PACKAGE = Path(rocketpy.__file__).parent
FILES = sorted([*(PACKAGE / "client").rglob("*.py"), *(PACKAGE / "app").rglob("*.py")])
METHODS = {"debug", "info", "warning", "error", "exception"}


def log_calls(path: Path) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in METHODS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logger"
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_texts_are_constant_and_values_have_names(path: Path) -> None:
    for call in log_calls(path):
        text, *values = call.args
        assert isinstance(text, ast.Constant), ast.unparse(call)
        template = str(text.value)
        names = re.findall(r"%\((\w+)\)", template)
        assert template.replace("%%", "").count("%") == len(names), ast.unparse(call)
        if not names:
            assert not values, ast.unparse(call)
            continue
        (given,) = values
        assert isinstance(given, ast.Dict), ast.unparse(call)
        assert [key.value for key in given.keys if isinstance(key, ast.Constant)] == names


def test_some_files_log() -> None:
    assert sum(len(log_calls(path)) for path in FILES) > 50


def test_record_has_its_values_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")

        async def handle(message: Any) -> None:
            raise ConnectError("no")

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handle):
                await pass_time(5)

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        run_sim(main, queues=1)
    record = next(each for each in caplog.records if "handler failed" in each.msg)
    assert record.msg == (
        "handler failed: messages=%(messages)r outcome=%(outcome)s "
        "callback=%(callback)s failures=%(count)d"
    )
    assert isinstance(record.args, dict)
    assert [each.body for each in record.args["messages"]] == [b"1"]
    assert "ReceivedMessage(t@" in record.getMessage()
