"""`rocketpy run`: name servers of the app and of the command."""

import json
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rocketpy.cli.main import command
from rocketpy.errors import ConfigError
from rocketpy.terminal.contexts import Cluster, Contexts, save

APP = """
import rocketpy
from rocketpy.client.cluster.name_servers import find_addresses


class Shown(rocketpy.App):
    def run(self, **options: object) -> None:
        print(*find_addresses(self.client.config.name_servers), *options.values())


{name} = Shown({given})


@{name}.subscribe("orders", group="shown")
async def handle(message: rocketpy.ReceivedMessage) -> None:
    pass
"""


@pytest.fixture(autouse=True)
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apps_of_a_run.py").write_text(
        APP.format(name="app", given="") + APP.format(name="own", given="'own:1'")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / name))
    save(Contexts({"closed": Cluster("closed:1", access_key="shop", secret_key="x")}, "closed"))
    for name in ("NAMESRV_ADDR", "ROCKETPY_CONTEXT", "ROCKETPY_ACCESS_KEY", "ROCKETPY_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str, app: str = "app", **environ: str) -> Result:
    sys.modules.pop("apps_of_a_run", None)
    return CliRunner().invoke(command, ("run", f"apps_of_a_run:{app}", *words), env=environ)


def test_app_without_name_servers_uses_those_of_the_command() -> None:
    assert run().output == "127.0.0.1:9876\n", "as all other commands do"
    assert run(NAMESRV_ADDR="env:1").output == "env:1\n"
    assert run("-n", "given:1;given:2", NAMESRV_ADDR="env:1").output == "given:1 given:2\n"
    assert "NAMESRV_ADDR" not in os.environ, "it is lent for as long as the app runs"


def test_app_with_name_servers_uses_its_own() -> None:
    assert run("-n", "given:1", app="own").output == "own:1\n"


def test_run_does_not_apply_contexts() -> None:
    assert run().output == "127.0.0.1:9876\n", "the context in use does not count"
    assert run(ROCKETPY_CONTEXT="closed").output == "127.0.0.1:9876\n"


def test_health_port_is_of_one_process() -> None:
    assert run("--health-port", "8080").output == "127.0.0.1:9876 8080 127.0.0.1\n"
    given = run("--health-port", "0", "--health-address", "0.0.0.0")
    assert given.output == "127.0.0.1:9876 0 0.0.0.0\n"
    refused = run("--health-port", "8080", "--workers", "2")
    assert refused.exit_code == 2
    assert "--health-port is of one process" in refused.output
    assert run("--health-port", "65536").exit_code == 2


@pytest.mark.parametrize("words", [[], ["--workers", "2"], ["--reload"], ["--health-port", "0"]])
def test_app_without_handlers_is_refused(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "apps_of_a_run.py").write_text("import rocketpy\n\napp = rocketpy.App()\n")
    refused = run(*words)
    assert isinstance(refused.exception, ConfigError)
    assert "apps_of_a_run:app has no handlers" in str(refused.exception)


@pytest.mark.parametrize(("given", "warnings"), [("on_start", 1), ("transaction_checker", 0)])
def test_app_without_handlers_that_has_other_work_runs(
    given: str, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = "message" if given == "transaction_checker" else ""
    lines = f"\n\n@app.{given}\ndef work({parameters}) -> None: ...\n"
    text = APP.format(name="app", given="").partition("\n\n@app.subscribe")[0]
    (tmp_path / "apps_of_a_run.py").write_text(text + lines)
    assert run().output == "127.0.0.1:9876\n"
    assert caplog.text.count("app without handlers started") == warnings


HANDLER = """

@app.subscribe("orders", group="billing")
async def bill(order: dict[str, int]) -> None:
    \"\"\"Groß oder klein.\"\"\"
"""


def test_asyncapi_writes_the_document_and_runs_nothing(tmp_path: Path) -> None:
    with (tmp_path / "apps_of_a_run.py").open("a", encoding="utf-8") as module:
        module.write(HANDLER)
    shown = run("--asyncapi", "-")
    assert shown.exit_code == 0
    document = json.loads(shown.output)
    assert document["operations"]["bill"]["x-rocketmq"]["group"] == "billing"
    assert "Groß oder klein." in shown.output
    (tmp_path / "asyncapi.json").write_text("of before")
    written = run("--asyncapi", "asyncapi.json")
    assert (written.exit_code, written.output) == (0, "")
    assert json.loads((tmp_path / "asyncapi.json").read_text("utf-8")) == document


@pytest.mark.parametrize("other", [["--workers", "2"], ["--reload"], ["--health-port", "0"]])
def test_asyncapi_with_options_of_a_run_is_refused(other: list[str], tmp_path: Path) -> None:
    refused = run("--asyncapi", "asyncapi.json", *other)
    assert refused.exit_code == 2
    assert not (tmp_path / "asyncapi.json").exists()


def test_asyncapi_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    for path in ("missing/asyncapi.json", str(tmp_path)):
        refused = run("--asyncapi", path)
        assert refused.exit_code in {1, 2}
        assert path in refused.output
        assert "Traceback" not in refused.output
