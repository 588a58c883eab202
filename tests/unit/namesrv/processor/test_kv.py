from typing import Any

import orjson
import pytest

from rocketpy.namesrv.processor.kv import KvProcessor


@pytest.fixture
def kv(world: Any) -> KvProcessor:
    return KvProcessor(world.kv, world.settings)


def test_put_get_list_and_delete(world: Any, kv: KvProcessor) -> None:
    assert world.ask(kv.put, namespace="n", key="k", value="v").code == 0
    assert world.ask(kv.get, namespace="n", key="k").ext_fields == {"value": "v"}
    listed = world.ask(kv.list_namespace, namespace="n")
    assert orjson.loads(listed.body) == {"table": {"k": "v"}}
    assert world.ask(kv.delete, namespace="n", key="k").code == 0
    missing = world.ask(kv.get, namespace="n", key="k")
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    assert world.ask(kv.delete, namespace="n", key="k").code == 0
    nowhere = world.ask(kv.list_namespace, namespace="m")
    assert (nowhere.code, nowhere.remark) == (22, "No config item, Namespace: m")


def test_table_is_bounded(world: Any, kv: KvProcessor) -> None:
    world.settings.update({"maxKvEntries": "0"})
    refused = world.ask(kv.put, namespace="n", key="k", value="v")
    assert (refused.code, refused.remark) == (1, "there are 0 values already")
