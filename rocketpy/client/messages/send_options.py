"""Keyword options of the send methods, and their validation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from numbers import Real
from types import NoneType
from typing import Final, TypedDict, cast

from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.options.durations import Duration, Moment, to_s
from rocketpy.client.options.validation import described, fits
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.message_queue import MessageQueue


class SendOptions(TypedDict, total=False):
    """Keyword options of the send methods; times are seconds or a timedelta.

    Attributes:
        tag: what consumers filter by.
        keys: what messages can be looked up by.
        headers: properties of your own.
        order_key: same key, same queue, in order; no other broker is tried.
        queue: send to this very queue; no other broker is tried.
        selector: chooses among the topic's queues; no other broker is tried.
        timeout: for all attempts together.
        retries: attempts after the first one.
        delay: deliver no sooner than after this time.
        deliver_at: deliver no sooner than at this time: a datetime (without a time zone, local
            time), a float of seconds since 1970, or an int of ms since 1970.
        delay_level: deliver after the broker's n-th delay, 1..18.
        flag: a number of your own.
        serializer: instead of the producer's.
        properties: system properties, for code that builds on this one.
    """

    tag: str
    keys: Iterable[str] | str
    headers: Mapping[str, str]
    order_key: str | int | None
    queue: MessageQueue
    selector: Callable[[Sequence[MessageQueue]], MessageQueue]
    timeout: Duration
    retries: int
    delay: Duration
    deliver_at: Moment
    delay_level: int
    flag: int
    serializer: Serializer
    properties: Mapping[str, str]


_OPTION_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "tag": (str, NoneType),
    "keys": (str, list, Iterable, NoneType),
    "headers": (dict, Mapping, NoneType),
    "order_key": (str, int, NoneType),
    "queue": (MessageQueue, NoneType),
    "selector": (Callable, NoneType),  # type: ignore[dict-item]
    "timeout": (Real, timedelta),
    "retries": (int,),
    "delay": (Real, timedelta, NoneType),
    "deliver_at": (datetime, Real, NoneType),
    "delay_level": (int, NoneType),
    "flag": (int,),
    "serializer": (object,),
    "properties": (dict, Mapping),
}
_NEVER_BELOW_0: Final = ("timeout", "retries")
assert set(_OPTION_TYPES) == set(SendOptions.__annotations__)


def check_options(options: SendOptions) -> None:
    """Check names and values of options.

    An option that is not known must not pass: a message without its tag, or before its time, is
    worse than none.

    Raises:
        TypeError: the name is no option's, or the value is of another type.
        IllegalMessageError: a value that none can have.
    """
    for name, value in options.items():
        types = _OPTION_TYPES.get(name)
        if types is None:
            near = get_close_matches(name, _OPTION_TYPES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"a send has no option {name!r}{hint}")
        is_flag = isinstance(value, bool) and name != "keys"
        if not isinstance(value, types) or is_flag:
            names = [each.__name__ for each in types if each is not NoneType]
            raise TypeError(f"{name}: {value!r} is not of type {' or '.join(names)}")
        if name in _NEVER_BELOW_0 and not 0 <= to_s(cast("Duration", value)) < float("inf"):
            raise IllegalMessageError(f"{name}: {value!r} cannot be")
    flag = options.get("flag", 0)
    if not -(1 << 31) <= flag < 1 << 31:
        raise IllegalMessageError(f"flag: {flag} does not fit into 32 bits")
    serializer = options.get("serializer")
    if serializer is not None and not fits(Serializer, serializer):
        raise TypeError(f"serializer: {serializer!r} is not {described(Serializer)}")
