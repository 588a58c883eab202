"""A wire class behaves as `dataclass(slots=True)` makes it whichever method is used first."""

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, ClassVar

import pytest

from rocketpy.proto import bodies, headers
from rocketpy.proto.headers.base import Header, header
from rocketpy.proto.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketpy.proto.wire.json_body import Body, body
from rocketpy.proto.wire.wire_fields import Declared


@body
class Shelf(Body):
    """A body that can be pickled."""

    name: str = ""


def fresh_class() -> Any:
    @body
    class Fresh(Body):
        """A class that nothing has used yet."""

        wire_names: ClassVar[Mapping[str, str]] = {"size": "theSize"}
        name: str
        tags: list[str] = field(default_factory=list)
        size: int = 7

    return Fresh


FIRST_USES = {
    "fields": dataclasses.fields,
    "is_dataclass": dataclasses.is_dataclass,
    "parameters": lambda made: made.__dataclass_params__,
    "match_args": lambda made: made.__match_args__,
    "init": lambda made: made("a"),
    "repr": lambda made: repr(made("a")),
    "eq": lambda made: made("a") == made("a"),
    "replace": lambda made: dataclasses.replace(made("a"), name="b"),
    "decode": lambda made: made.decode(b'{"name":"b"}'),
    "derive": lambda made: body(type("Derived", (made,), {"__annotations__": {"x": int}, "x": 1})),
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES.keys())
def test_wire_dataclass_any_first_use_completes_the_class(use: Any) -> None:
    made = fresh_class()
    use(made)
    assert repr(made("a", ["t"], size=1)).endswith("Fresh(name='a', tags=['t'], size=1)")
    assert made("a") == made("a") != made("b")
    assert made("a").tags is not made("a").tags
    assert [each.name for each in dataclasses.fields(made)] == ["name", "tags", "size"]
    assert made.__match_args__ == ("name", "tags", "size")
    assert made.wire_name("size") == "theSize"
    assert not hasattr(made("a"), "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(made("a"))


def test_wire_dataclass_wrong_arguments_name_the_class() -> None:
    made = fresh_class()
    with pytest.raises(TypeError, match=r"Fresh\.__init__\(\) missing 1 required positional"):
        made()
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        made("a", other=1)


def test_wire_dataclass_derived_class_keeps_fields_and_methods_of_its_base() -> None:
    @header
    class Base(Header):
        """A header with a default."""

        topic: str
        size: int = 1

    @header
    class Derived(Base):
        """The same with another default and one more field."""

        size: int = 2
        name: str = "n"

    assert Derived(topic="t") == Derived(topic="t", size=2, name="n")
    assert Base(topic="t") == Base(topic="t", size=1)
    other: Any = Derived(topic="t", size=1)
    assert Base(topic="t") != other
    assert vars(Derived)["__slots__"] == ("name",)


def test_wire_dataclass_object_survives_pickle_and_copy() -> None:
    shelf = Shelf("a")
    assert pickle.loads(pickle.dumps(shelf)) == copy.copy(shelf) == copy.deepcopy(shelf) == shelf


def test_wire_dataclass_first_used_by_many_threads_is_complete_for_each() -> None:
    for _ in range(30):
        made = fresh_class()
        barrier = threading.Barrier(4)

        def use(made: Any = made, barrier: threading.Barrier = barrier) -> list[Any]:
            barrier.wait()
            return [made("a"), *(each.default_factory for each in dataclasses.fields(made))]

        with ThreadPoolExecutor(4) as pool:
            found = [each.result() for each in [pool.submit(use) for _ in range(4)]]
        assert all(each == found[0] for each in found)
        assert found[0][2] is list


def wire_classes() -> list[type[Any]]:
    found = []
    for package in (headers, bodies):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            found += [
                each
                for each in vars(module).values()
                if isinstance(each, type)
                and issubclass(each, Declared)
                and each.__module__ == info.name
                and "__dataclass_fields__" in vars(each)
            ]
    return found


def test_wire_dataclass_every_class_has_a_slot_for_each_field() -> None:
    classes = wire_classes()
    assert len(classes) > 150
    assert {SendMessageRequestHeader, SendMessageRequestHeaderV2} <= set(classes)
    for each in classes:
        slots = [name for base in each.__mro__ for name in vars(base).get("__slots__", ())]
        names = [one.name for one in dataclasses.fields(each)]
        assert sorted(slots) == sorted(names), each
        assert "__dict__" not in dir(each)
