"""A lazy dataclass behaves as one of the standard library, from the first use of each method on."""

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar

import pytest

import rocketpy
from rocketpy.lazy_dataclass import FEW, lazy_dataclass


@lazy_dataclass(frozen=True)
class Place:
    """Frozen."""

    kind: ClassVar[str] = "place"
    name: str
    tags: list[str] = field(default_factory=list, compare=False)
    size: int = 7


@dataclass(frozen=True, slots=True)
class StandardPlace:
    """The same as the standard library makes it."""

    kind: ClassVar[str] = "place"
    name: str
    tags: list[str] = field(default_factory=list, compare=False)
    size: int = 7


@lazy_dataclass(kw_only=True)
class Count:
    """Can change, and counts what it is made with."""

    first: int
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = self.first + 1


@lazy_dataclass(kw_only=True)
class NamedCount(Count):
    """Derived, with a representation of its own."""

    name: str = "n"

    def __repr__(self) -> str:
        return f"<{self.name}>"


def test_it_compares_hashes_and_prints_as_the_standard_one() -> None:
    lazy, standard = Place("a", ["t"]), StandardPlace("a", ["t"])
    other: object = standard
    assert repr(lazy) == repr(standard).replace("StandardPlace", "Place")
    assert hash(lazy) == hash(standard)
    assert lazy == Place("a", ["other"])
    assert lazy != Place("b")
    assert lazy != other
    assert Place("a").tags is not Place("a").tags
    assert dataclasses.asdict(lazy) == dataclasses.asdict(standard)
    assert not hasattr(lazy, "__dict__")


def test_a_frozen_one_cannot_change_and_can_be_copied() -> None:
    place: Any = Place("a", ["t"], 3)
    for name in ("name", "size", "unknown"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(place, name, "b")
    with pytest.raises(FrozenInstanceError, match="size"):
        del place.size
    for twin in (pickle.loads(pickle.dumps(place)), copy.copy(place), dataclasses.replace(place)):
        assert (twin, twin.tags) == (place, ["t"])


def test_wrong_arguments_are_told_with_the_name_of_the_class() -> None:
    make: Any = Place
    with pytest.raises(TypeError, match=r"Place\.__init__\(\) missing 1 required positional"):
        make()
    count: Any = Count
    with pytest.raises(TypeError, match=r"takes 1 positional argument"):
        count(1)


def test_a_derived_class_has_its_own_methods_whichever_is_used_first() -> None:
    named = NamedCount(first=1, name="x")
    assert (named.first, named.total, repr(named)) == (1, 2, "<x>")
    assert repr(Count(first=2)).endswith("Count(first=2, total=3)")
    assert Count(first=2) != NamedCount(first=2)
    assert NamedCount(first=2) == NamedCount(first=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Count(first=1))


def test_the_first_objects_are_as_the_later_ones() -> None:
    @lazy_dataclass(frozen=True)
    class Thing:
        """With every kind of field."""

        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list)
        count: int = field(default=1, kw_only=True)
        made: bool = field(default=True, init=False)

    places = [
        [make() for _ in range(FEW + 2)]
        for make in (
            lambda: Thing("a"),
            lambda: Thing("a", 3, [], count=1),
            lambda: Thing(size=3, name="a"),
        )
    ]
    first, *others = (thing for group in places for thing in group)
    assert all(thing == first for thing in others)
    assert repr(first).endswith("Thing(name='a', size=3, tags=[], count=1, made=True)")
    assert len({id(thing.tags) for group in (places[0], places[2]) for thing in group}) == 2 * (
        FEW + 2
    )
    assert len({id(thing.tags) for thing in places[1]}) == FEW + 2


@pytest.mark.parametrize(
    ("args", "named", "told"),
    [
        ((), {}, "missing 1 required positional argument: 'name'"),
        (("a", [], 1, 2), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        (("a",), {"name": "b"}, "got multiple values for argument 'name'"),
        (("a",), {"other": 1}, "got an unexpected keyword argument 'other'"),
    ],
)
@pytest.mark.parametrize("objects_before", [0, 1, FEW, FEW + 1])
def test_whoever_makes_one_the_wrong_way_is_told_so_from_the_first_object_on(
    args: tuple[Any, ...], named: dict[str, Any], told: str, objects_before: int
) -> None:
    @lazy_dataclass(frozen=True)
    class Fresh:
        """As `Place`, made anew."""

        name: str
        tags: list[str] = field(default_factory=list)
        size: int = 7

    for _ in range(objects_before):
        Fresh("x")
    make: Any = Fresh
    with pytest.raises(TypeError, match=told):
        make(*args, **named)
    assert Fresh("x", size=1) == Fresh("x", [], 1)


def test_a_method_is_made_once_and_stays() -> None:
    @lazy_dataclass()
    class Pair:
        """Two."""

        left: int
        right: int

    stand_in: object = vars(Pair)["__init__"]
    for _ in range(FEW):
        Pair(1, 2)
    assert vars(Pair)["__init__"] is stand_in, "for so few it would not pay"
    Pair(1, 2)
    made: object = vars(Pair)["__init__"]
    Pair(3, 4)
    assert made is not stand_in
    assert vars(Pair)["__init__"] is made


def fresh() -> Any:
    @lazy_dataclass()
    class Fresh:
        """Made anew, so that nobody has looked at it yet."""

        kind: ClassVar[str] = "place"
        name: str
        tags: list[str] = field(default_factory=list, metadata={"key": "t"})
        size: int = field(default=7, kw_only=True)
        made: bool = field(default=True, init=False)

    return Fresh


def test_its_fields_are_found_when_somebody_looks_at_them() -> None:
    made = fresh()
    found: object = vars(made)["__dataclass_fields__"]
    assert not isinstance(found, dict)
    made("a")
    made("a", size=3)
    assert vars(made)["__dataclass_fields__"] is found
    tags = dataclasses.fields(made)[1]
    assert [each.name for each in dataclasses.fields(made)] == ["name", "tags", "size", "made"]
    assert (tags.metadata["key"], tags.default_factory) == ("t", list)
    assert isinstance(vars(made)["__dataclass_fields__"], dict)
    assert made.__match_args__ == ("name", "tags")
    assert made.kind == "place"


@pytest.mark.parametrize(
    "look",
    [
        dataclasses.fields,
        lambda made: dataclasses.fields(made("a")),
        dataclasses.is_dataclass,
        lambda made: dataclasses.replace(made("a"), name="b"),
        lambda made: made("a").__replace__(name="b"),
        lambda made: dataclasses.asdict(made("a")),
        lambda made: repr(made("a")),
        lambda made: made("a") == made("a"),
        lambda made: [made("a") for _ in range(FEW + 2)],
        lambda made: dataclasses.fields(type("Derived", (made,), {})),
        lambda made: lazy_dataclass()(type("Derived", (made,), {"__annotations__": {"x": int}})),
        lambda made: made.__dataclass_params__,
    ],
)
def test_whoever_looks_first_finds_it_whole(look: Any) -> None:
    made = fresh()
    look(made)
    assert repr(made("a", ["t"], size=1)).endswith("Fresh(name='a', tags=['t'], size=1, made=True)")
    assert made("a").tags is not made("a").tags
    assert len(dataclasses.fields(made)) == 4
    assert not hasattr(made("a"), "__dict__")


def test_many_threads_look_at_once() -> None:
    for _ in range(30):
        made = fresh()
        barrier = threading.Barrier(4)

        def look(made: Any = made, barrier: threading.Barrier = barrier) -> list[Any]:
            barrier.wait()
            return [made("a"), *(each.default_factory for each in dataclasses.fields(made))]

        with ThreadPoolExecutor(4) as pool:
            found = [each.result() for each in [pool.submit(look) for _ in range(4)]]
        assert all(each == found[0] for each in found)
        assert found[0][2] is list


def test_a_mark_that_few_classes_have_is_left_to_the_standard_one() -> None:
    @lazy_dataclass()
    class ByName:
        """From a mark on by name only."""

        first: int
        _: dataclasses.KW_ONLY
        second: int = 2

    assert [ByName(1, second=3).second for _ in range(FEW + 2)] == [3] * (FEW + 2)
    assert ByName.__match_args__ == ("first",)


def test_every_class_of_the_package_has_the_fields_that_the_standard_one_finds() -> None:
    found = 0
    for info in pkgutil.walk_packages(rocketpy.__path__, "rocketpy."):
        if info.name.startswith(("rocketpy.spark", "rocketpy.otel")) or "__main__" in info.name:
            continue
        module = importlib.import_module(info.name)
        for each in vars(module).values():
            if not isinstance(each, type) or each.__module__ != info.name:
                continue
            if "__replace__" not in vars(each) or not dataclasses.is_dataclass(each):
                continue
            found += 1
            own = dataclasses.fields(each)
            assert each.__slots__ == tuple(one.name for one in own), each  # type: ignore[attr-defined]
            by_place = tuple(one.name for one in own if one.init and not one.kw_only)
            assert each.__match_args__ == by_place, each  # type: ignore[attr-defined]
    assert found > 150
