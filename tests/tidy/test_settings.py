"""A key that is accepted has an effect: its value is read somewhere; every other is explained."""

import ast
import dataclasses
from functools import cache
from pathlib import Path

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.controller.config import ControllerConfig
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.remoting.config import (
    RemotingClientConfig,
    RemotingServerConfig,
    TlsClientConfig,
    TlsServerConfig,
)
from rocketpy.runtime.config.apache_keys import APACHE_KEYS, REASONS
from rocketpy.runtime.config.config import options_of
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.store.config import MessageStoreConfig

PACKAGE = Path(__file__).parents[2] / "rocketpy"
CLASSES = (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    ControllerConfig,
    OperationConfig,
    RemotingServerConfig,
    RemotingClientConfig,
    TlsClientConfig,
    TlsServerConfig,
)


@cache
def attributes_read() -> frozenset[str]:
    """Return the names of all attributes that the package reads."""
    return frozenset(
        node.attr
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@pytest.mark.parametrize("config_class", CLASSES, ids=lambda each: each.__name__)
def test_every_accepted_key_is_read(config_class: type) -> None:
    names = {each.name for each in dataclasses.fields(config_class)}
    assert names - attributes_read() == set()


def test_what_has_no_effect_is_no_setting_and_known_to_apache() -> None:
    accepted = {each.key for config_class in CLASSES for each in options_of(config_class)}
    assert not accepted & REASONS.keys()
    assert REASONS.keys() <= APACHE_KEYS
