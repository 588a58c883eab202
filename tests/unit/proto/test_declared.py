"""Headers and bodies are declared where a feature uses them: none waits for one to come."""

import re
from pathlib import Path

import pytest

import rocketpy
from rocketpy.proto import bodies, headers
from rocketpy.proto.headers.base import Header
from rocketpy.proto.json_body import Body
from tests.unit.proto.declared import declared

SOURCES = [path.read_text() for path in Path(rocketpy.__file__).parent.rglob("*.py")]
NAMES = [one.__name__ for one in [*declared(headers, Header), *declared(bodies, Body)]]


@pytest.mark.parametrize("name", NAMES)
def test_every_declared_class_is_used(name: str) -> None:
    uses = sum(len(re.findall(rf"\b{name}\b", text)) for text in SOURCES)
    assert uses > 1, f"{name} is declared, and nothing uses it"
