"""Secrets that options name by their source."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.options import parse_options
from rocketpy.spark.read_options import BatchOptions, StreamOptions
from rocketpy.spark.sink.options import SinkOptions

READ = {"nameservers": "127.0.0.1:9876", "subscribe": "orders", "accessKey": "shop"}


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return a source of each kind, all with the same secret."""
    monkeypatch.setenv("MY_SECRET", "s3cret")
    path = tmp_path / "secret"
    path.write_text("s3cret\n")
    runtime = ModuleType("databricks.sdk.runtime")
    vault = {("team", "mq"): "s3cret"}
    runtime.dbutils = SimpleNamespace(  # type: ignore[attr-defined]
        secrets=SimpleNamespace(get=lambda scope, key: vault[scope, key])
    )
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    return {"env": "env:MY_SECRET", "file": f"file:{path}", "scope": "scope:team/mq"}


@pytest.mark.parametrize("kind", ["env", "file", "scope"])
def test_secret_of_a_source_is_used_and_never_shown(sources: dict[str, str], kind: str) -> None:
    options = READ | {"secretKey.from": sources[kind], "securityToken.from": sources[kind]}
    for declared in (BatchOptions, StreamOptions):
        found = parse_options(options, declared)
        assert found.credentials is not None
        assert found.credentials.secret_key == "s3cret"
        assert found.credentials.security_token == "s3cret"
        assert "s3cret" not in repr(found) + repr(vars(found))
    sink = {"nameservers": "a", "topic": "t", "tls.client.keyPassword.from": sources[kind]}
    assert parse_options(sink, SinkOptions).remoting.tls.key_password == "s3cret"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"secretKey.from": "env:NONE"}, "environment variable NONE is not set in this process"),
        ({"secretKey.from": "file:/none"}, "file /none cannot be read"),
        ({"secretKey.from": "scope:team/mq"}, "secret scopes exist on Databricks only"),
        ({"secretKey.from": "vault:x"}, "is not env:NAME, file:PATH or scope:SCOPE/KEY"),
        ({"secretKey.from": "scope:team"}, "is not scope:SCOPE/KEY"),
        ({"secretKey.from": "env:MY", "secretKey": "x"}, "secretKey.from: excludes secretKey"),
        ({"secretKey.from": "env:EMPTY"}, "env:EMPTY is empty"),
    ],
)
def test_secret_source_that_is_wrong_names_option_and_remedy(
    options: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", None)
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ConfigError) as caught:
        assert parse_options(READ | options, BatchOptions).credentials
    assert str(caught.value).startswith("secretKey.from: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("option", ["secretKey.from", "securityToken.from"])
def test_secret_given_as_its_source_is_not_in_the_error(option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(READ | {option: "s3cr3t"}, BatchOptions)
    assert str(caught.value).startswith(f"{option}: its value is not env:NAME")
    assert "s3cr3t" not in str(caught.value)


def test_missing_secret_names_the_source_option() -> None:
    with pytest.raises(ConfigError, match=r"secretKey: is missing.*secretKey\.from"):
        parse_options(READ, BatchOptions)
