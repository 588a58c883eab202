"""Every piece of code in the guide runs and prints what the page says; one broker serves all."""

import asyncio
import inspect
import shlex
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import rocketpy
from rocketpy.cli.main import command
from rocketpy.runtime.logs import through_logging
from rocketpy.terminal.error_exit import run_command
from rocketpy.testing.cluster import ClusterThread
from tests.docs.snippets import GUIDE, Snippet, snippets

ADDRESS = "127.0.0.1:9876"
NOT_RUN = ("pip install ", "rocketpy standalone ", "rocketpy spark ", "rocketpy run ", "uvicorn ")
"""Commands that install, serve until they are stopped, or need a JDK."""
SETTINGS = {"messageDelayLevel": "1s " * 17 + "2h"}
"""Retries come after a second."""

EVERY = [
    pytest.param(page, each, id=f"{page.name}:{each.line}")
    for page in sorted(GUIDE.glob("*.md"))
    for each in snippets(page)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    directory = tmp_path_factory.mktemp("guide")
    with through_logging(), ClusterThread(directory, properties=SETTINGS) as running:
        yield running


def place(page: Path, snippet: Snippet) -> str:
    """A file name for tracebacks that leads to the page."""
    return f"{page.name}:{snippet.line}"


def run_python(page: Path, snippet: Snippet, cluster: ClusterThread) -> None:
    code = snippet.code.replace(ADDRESS, cluster.namesrv)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(code, place(page, snippet), "exec"), names)
    for name, value in names.items():
        if inspect.iscoroutinefunction(value) and name.startswith("test_"):
            asyncio.run(run_with_client(value, cluster))
        elif name.startswith("test_") and inspect.isfunction(value):
            known = {"rocketpy_cluster": cluster}
            value(**{each: known[each] for each in inspect.signature(value).parameters})


async def run_with_client(test: Callable[..., Awaitable[None]], cluster: ClusterThread) -> None:
    async with rocketpy.connect(cluster.namesrv, group="tests") as client:
        await test(rocketpy_client=client)


def run_shell(snippet: Snippet) -> None:
    for line in snippet.code.splitlines():
        if not line or line.startswith(NOT_RUN):
            continue
        program, *words = shlex.split(line, comments=True)
        assert program == "rocketpy", f"nobody runs {line!r}"
        with pytest.raises(SystemExit) as ended:
            run_command(command, "rocketpy", words)
        assert not ended.value.code, line


@pytest.mark.parametrize(("page", "snippet"), EVERY)
def test_code_block_prints_the_documented_output(
    cluster: ClusterThread,
    page: Path,
    snippet: Snippet,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.chdir(tmp_path)
    if snippet.language == "python":
        run_python(page, snippet, cluster)
        assert capsys.readouterr().out == (snippet.output or "")
        return
    assert snippet.language == "sh", "python, sh, or text for output"
    run_shell(snippet)
    assert capsys.readouterr().out.endswith(snippet.output or "")


def test_guide_has_code_and_says_what_it_prints() -> None:
    found = [each for page in GUIDE.glob("*.md") for each in snippets(page)]
    assert len([each for each in found if each.language == "python" and each.output]) > 10
