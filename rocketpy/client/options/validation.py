"""Whether a value fits the annotation of an option, and in words what would.

Type checkers say the same earlier; a value that passed unseen would fail later, and elsewhere.

Names and filters that users give, checked before anything is sent.
"""

import functools
import inspect
import logging
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from rocketpy.client.options.durations import Duration, to_s
from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUB_ALL,
    SubscriptionData,
    build_subscription,
)
from rocketpy.proto.validators import check_group, check_topic
from rocketpy.sql92.condition import compile_condition

_WORDS: Final[dict[object, str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
}


_NOUNS: Final = frozenset({"a text", "a number", "a function"})


def fits(kind: Any, value: object) -> bool:  # noqa: ANN401 - an annotation
    """Tell whether a value is of the kind that an annotation names."""
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        return any(fits(each, value) for each in get_args(kind))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(kind))
    if origin is Callable:
        return callable(value)
    if origin is Sequence:
        (item,) = get_args(kind)
        # A mapping is refused: only its keys would be used, and its values be lost.
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return False
        return all(fits(item, each) for each in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            return False
        of_key, of_value = get_args(kind)
        return all(fits(of_key, each) and fits(of_value, value[each]) for each in value)
    if kind is float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return math.isfinite(value)
    if kind is int and isinstance(value, bool):
        return False
    methods = _methods(kind)
    if methods:
        return all(_has_method(value, name) for name in methods)
    return isinstance(value, kind)


def _has_method(value: object, name: str) -> bool:
    """Return whether an object has a method; a class in the place of its instance has none."""
    if isinstance(value, type):
        found = inspect.getattr_static(value, name, None)
        return isinstance(found, staticmethod | classmethod)
    return callable(getattr(value, name, None))


def described(kind: Any) -> str:  # noqa: ANN401
    """Return in words what fits an annotation."""
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        words = list(dict.fromkeys(described(each) for each in get_args(kind)))
        is_choice = any(get_origin(each) is Literal for each in get_args(kind))
        return _choice(words) if is_choice else " or ".join(words)
    if origin is Literal:
        return _choice([repr(each) for each in get_args(kind)])
    if origin is Callable:
        return "a function"
    if origin is Sequence:
        item = described(get_args(kind)[0])
        return f"a list of {item.removeprefix('a ')}s" if item in _NOUNS else f"a list of {item}"
    if origin is Mapping:
        return "a mapping from {} to {}".format(*map(described, get_args(kind)))
    methods = _methods(kind)
    if methods:
        return f"an object with {' and '.join(methods)}"
    return _WORDS.get(kind) or f"a {kind.__name__}"


def _choice(words: list[str]) -> str:
    """Return what an option may be, for a message that says what it is not."""
    listed = ", ".join(word.removeprefix("one of ") for word in words)
    return f"one of {listed}" if len(words) > 1 else words[0]


def _methods(kind: Any) -> list[str]:  # noqa: ANN401
    """The methods of a protocol; nothing of another class."""
    kind = get_origin(kind) or kind
    if not getattr(kind, "_is_protocol", False):
        return []
    return [name for name in vars(kind) if not name.startswith("_")]


def refuse_generators(values: Mapping[str, object]) -> None:
    """Refuse functions with `yield`: calling one makes a generator, and runs nothing of it.

    Args:
        values: by their option, functions or lists of them among others.

    Raises:
        ConfigError: names the option.
    """
    for name, value in values.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if callable(each) and _is_generator(each):
                raise ConfigError(f"{each!r} has a yield: called, it would do nothing", key=name)


def _is_generator(function: Any) -> bool:  # noqa: ANN401 - anything that is called
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object's own
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            return True
    return False


def takes(handler: Callable[..., Any], *counts: int) -> bool:
    """Whether a function can be called with as many arguments as one of the counts says."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # builtins without a signature
        return True
    for count in counts:
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return True
    return False


logger: logging.Logger = logging.getLogger(__name__)

BATCH: Final = 500
"""Most messages of one list by default."""


def checked_count(count: int, name: str = "max_messages") -> int:
    """Return how many messages are asked for.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is less than 1.
    """
    whole = checked_whole(name, count)
    if whole < 1:
        raise ValueError(f"{name} is {whole}, not 1 or more")
    return whole


def checked_whole(name: str, value: int) -> int:
    """Return a whole number, also one of numpy; raises TypeError for 3.0 and True."""
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return operator.index(value)
    raise TypeError(f"{name}: {value!r} is not a whole number")


def checked_timeout(timeout: Duration | None) -> float | None:
    """Return a time-out in seconds, None without a limit.

    Raises:
        TypeError: it is no duration.
    """
    if timeout is None or timeout == math.inf:
        return None
    if not fits(Duration, timeout):
        raise TypeError(f"timeout: {timeout!r} is not {described(Duration)}")
    return max(0.0, to_s(timeout))


def checked_topic(topic: str) -> str:
    """Return the name of a topic: servers close a connection on which another value comes.

    Raises:
        TypeError: it is no text.
        ConfigError: no topic can have it.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic: {topic!r} is not {described(str)}"[:200])
    reason = check_topic(topic)
    if reason is not None:
        raise ConfigError(reason, key="topic")
    return topic


def check_read(topics: str | Sequence[str], group: str, tags: str, sql: str) -> None:
    """Check what a consumer's options say it reads, as its start does.

    Args:
        topics: one or several; empty text is a consumer whose topics come later.
        group: its group; empty is that of the client.
        tags: `"a || b"`, or `"*"`, which also stands beside a condition.
        sql: a condition on properties; empty filters by tags.

    Raises:
        ConfigError: there is no topic, a name cannot be used, or there are tags and a condition.
        ExpressionError: `sql` is no condition.
    """
    if isinstance(topics, str):
        topics = [topics] if topics else []
    elif not topics:
        raise ConfigError("give at least one topic", key="topic")
    for topic in topics:
        if reason := check_topic(topic):
            raise ConfigError(f"{topic[:200]!r}: {reason}", key="topic")
    if group:
        checked_group(group)
    _check_condition(tags, sql)


def _check_condition(tags: str, sql: str) -> None:
    if sql:
        if tags != SUB_ALL:
            raise ConfigError("give tags or a condition, not both", key="sql")
        compile_condition(sql)


def checked_queue(queue: MessageQueue) -> MessageQueue:
    """Return a queue; raises TypeError for another value."""
    if not isinstance(queue, MessageQueue):
        raise TypeError(f"{queue!r} is not a MessageQueue"[:200])
    return queue


def checked_group(group: str) -> str:
    """Return the name of a group.

    Raises:
        ConfigError: no group can have it.
    """
    reason = check_group(group)
    if reason is not None:
        raise ConfigError(reason, key="group")
    return group


def checked_texts(topic: object, filter: object, sql: object) -> None:  # noqa: A002
    """Raise TypeError for what `subscribe` does not take: several topics, among others."""
    for name, value in (("topic", topic), ("filter", filter), ("sql", sql)):
        if not isinstance(value, str):
            raise TypeError(f"subscribe() takes one text as {name}, not {value!r}"[:200])


def checked_subscription(topic: str, tags: str, sql: str, version: int) -> SubscriptionData:
    """Return what a consumer wants of a topic.

    Args:
        topic: its name.
        tags: `"a || b"`, or `"*"`, which also stands beside a condition.
        sql: a condition on properties; empty filters by tags.
        version: brokers keep the subscription with the greatest one.

    Raises:
        ConfigError: the name or the tags cannot be used, or there are tags and a condition.
        ExpressionError: `sql` is no condition.
    """
    reason = check_topic(topic)
    if reason is not None:
        raise ConfigError(reason, key="topic")
    _check_condition(tags, sql)
    kind = EXPRESSION_SQL92 if sql else EXPRESSION_TAG
    if not sql and any(each in tags.replace("||", "") for each in "|,"):  # a tag may be so named
        logger.warning(
            "filter names a tag with | or , in it, did you mean || as in 'a || b': "
            "filter=%(filter)r topic=%(topic)s",
            {"filter": tags, "topic": topic},
        )
    try:
        return build_subscription(topic, sql or tags, kind, sub_version=version)
    except ValueError as error:
        raise ConfigError(str(error), key="filter") from error
