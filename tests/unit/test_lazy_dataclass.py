"""A lazy dataclass behaves as one of the standard library, from the first use of each method on."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar

import pytest

from rocketpy.lazy_dataclass import lazy_dataclass


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
        [make() for _ in range(4)]
        for make in (
            lambda: Thing("a"),
            lambda: Thing("a", 3, [], count=1),
            lambda: Thing(size=3, name="a"),
        )
    ]
    first, *others = (thing for group in places for thing in group)
    assert all(thing == first for thing in others)
    assert repr(first).endswith("Thing(name='a', size=3, tags=[], count=1, made=True)")
    assert len({id(thing.tags) for group in (places[0], places[2]) for thing in group}) == 8
    assert len({id(thing.tags) for thing in places[1]}) == 4


@pytest.mark.parametrize(
    ("args", "named", "told"),
    [
        ((), {}, "missing 1 required positional argument: 'name'"),
        (("a", [], 1, 2), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        (("a",), {"name": "b"}, "got multiple values for argument 'name'"),
        (("a",), {"other": 1}, "got an unexpected keyword argument 'other'"),
    ],
)
@pytest.mark.parametrize("objects_before", [0, 1, 2, 3])
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
    for _ in range(2):
        Pair(1, 2)
    assert vars(Pair)["__init__"] is stand_in, "for so few it would not pay"
    Pair(1, 2)
    made: object = vars(Pair)["__init__"]
    Pair(3, 4)
    assert made is not stand_in
    assert vars(Pair)["__init__"] is made
