"""Checks of the functions that users give: annotations of handlers, parameters of the others.

A handler of one parameter gets the message, one of two parameters the decoded body and the message.
An annotation that says otherwise would be wrong at every delivery, without any error.
"""

import inspect
from collections.abc import Callable
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from msgpack import ExtType, Timestamp  # type: ignore[import-untyped]

from rocketpy.client.messages.body_types import is_typed_dict
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import PLAIN, json, msgpack, text
from rocketpy.client.options.validation import refuse_generators, takes
from rocketpy.errors import ConfigError


class Callback(NamedTuple):
    """Signature of an option's function.

    Attributes:
        parameters: their number.
        words: the function in words.
        is_awaited: whether it may be a coroutine function; of any other one the coroutine would
            never run.
    """

    parameters: int
    words: str
    is_awaited: bool = True


_QUEUES: Final = Callback(1, "a function of a list of queues")
_CHECKER: Final = Callback(1, "a function of a message that returns a TxState")
_HOOK: Final = Callback(0, "a function without parameters")
_CALLBACKS: Final = {
    "allocation": Callback(3, "a plain function of a member, queues and members", False),
    "on_assigned": _QUEUES,
    "on_error": Callback(2, "a function of a message and its error"),
    "on_retry": Callback(1, "a plain function of a SendRetry", False),
    "on_revoked": _QUEUES,
    "on_start": _HOOK,
    "on_stop": _HOOK,
    "order_by_key": Callback(1, "a plain function of a message that returns its key", False),
    "retry_backoff": Callback(
        1, "a plain function of the retry's number that returns a delay", False
    ),
    "transaction_checker": _CHECKER,
    "tx_checker": _CHECKER,
}
_MIDDLEWARES: Final = {
    "middleware": "handled",
    "middlewares": "sent or handled",
    "reply_middlewares": "sent",
    "send_middleware": "sent",
}
_OF_JSON: Final = (dict, list, str, int, float, bool)
_DECODED: Final = (
    (PLAIN, "bytes", (bytes,)),
    (text, "str", (str,)),
    (json, "a value of JSON", _OF_JSON),
    (msgpack, "a value of MessagePack", (*_OF_JSON, bytes, ExtType, Timestamp)),
)
"""Serializers whose values are of fixed classes: name for errors, and the classes except None."""


def check_callback(name: str, function: object) -> None:
    """Refuse a function that cannot be called as its option says.

    Args:
        name: of the option, or of the decorator of an app.
        function: of the user.

    Raises:
        ConfigError: names the option.
    """
    refuse_generators({name: function})
    known = _CALLBACKS[name]
    is_usable = callable(function) and takes(function, known.parameters)
    if not is_usable or (not known.is_awaited and _is_coroutine_function(function)):
        raise ConfigError(f"{function!r} is not {known.words}"[:200], key=name)


def check_middleware(name: str, middleware: Any) -> None:  # noqa: ANN401 - the user's
    """Refuse a middleware that cannot be called, or whose result cannot be awaited.

    Raises:
        ConfigError: names the option.
    """
    refuse_generators({name: middleware})
    if not callable(middleware) or not takes(middleware, 2):
        reason = f"a middleware takes what is {_MIDDLEWARES[name]}, and what to call with it"
        raise ConfigError(reason, key=name)
    # One that wraps another may return its coroutine; no other plain function has one to return.
    function = getattr(middleware, "__func__", middleware)  # of a method
    is_plain = isinstance(function, FunctionType) and not hasattr(function, "__wrapped__")
    if is_plain and not _is_coroutine_function(middleware):
        raise ConfigError(f"{middleware!r} is to be a coroutine function (async def)", key=name)


def _is_coroutine_function(function: Any) -> bool:  # noqa: ANN401 - anything that is called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object's own
    )


NOT_BOUND: Final = (
    "a method of a class without its object: register the method of an object, such as "
    "`subscribe(...)(service.handle)`"
)


def not_bound(handler: Callable[..., Any]) -> bool:
    """Whether a handler is a method without its object, whose `self` would get the body."""
    if not inspect.isfunction(handler):
        return False
    names = handler.__code__.co_varnames[: handler.__code__.co_argcount]
    return names[:1] in {("self",), ("cls",)}


def mismatch(handler: Callable[..., Any], serializer: object, *, is_list: bool) -> str:
    """Return how a handler's annotations differ from its arguments; empty if they do not.

    Args:
        handler: takes a message, or a body and a message.
        serializer: decodes the body.
        is_list: whether the handler gets lists.
    """
    if not_bound(handler):
        return f"{handler.__qualname__}: {NOT_BOUND}"
    try:
        parameters = inspect.signature(handler, eval_str=True).parameters.values()
    except (AttributeError, NameError, SyntaxError, TypeError, ValueError):
        return ""  # a builtin without signature, or names that are defined later
    positional = [
        each
        for each in parameters
        if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
    ]
    needed = [each for each in positional if each.default is each.empty] or positional[:1]
    if not needed:
        return ""
    name = getattr(handler, "__qualname__", type(handler).__name__).rpartition(".")[2]
    message = needed[-1]
    argument = "a list of ReceivedMessage" if is_list else "a ReceivedMessage"
    if not _fits(ReceivedMessage, _element(message.annotation, is_list=is_list)):
        advice = "the second parameter of a handler is the message"
        if is_list:
            advice = "with batch above 1 a handler gets lists"
        elif len(needed) == 1:
            advice = (
                f"`{name}(body: {_name(message.annotation)}, message: ReceivedMessage)` "
                f"gets the decoded body, and so does a handler of rocketpy.App"
            )
        return (
            f"{name}(): parameter {message.name} gets {argument}, "
            f"not {_name(message.annotation)}; {advice}"
        )
    body = needed[0].annotation if len(needed) > 1 else inspect.Parameter.empty
    wanted = _element(body, is_list=is_list)
    if _is_class(wanted) and issubclass(wanted, ReceivedMessage):
        return f"{name}(): parameter {needed[0].name} gets the body; the message comes second"
    given, kinds = _decoded(serializer)
    if kinds and not _may_hold(kinds, wanted):
        advice = f"use serializer=rocketpy.TypedSerializer({_name(wanted)})"
        if serializer is msgpack:
            advice = "a handler of rocketpy.App(serializer=rocketpy.msgpack) gets it converted"
        return f"{name}(): parameter {needed[0].name} gets {given}, not {_name(wanted)}; {advice}"
    return ""


def _decoded(serializer: object) -> tuple[str, tuple[type, ...]]:
    """Return what a serializer decodes to, in words and as classes; no classes when unknown."""
    for known, words, kinds in _DECODED:
        if serializer is known:
            return words, kinds
    kind: Any = getattr(serializer, "kind", None)
    return _name(kind), (kind,) if _is_class(kind) else ()


def _may_hold(kinds: tuple[type, ...], wanted: Any) -> bool:  # noqa: ANN401 - an annotation
    """Return whether an annotation may describe a value of classes, elements included."""
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    owner, arguments = get_origin(wanted), get_args(wanted)
    if owner in {Union, UnionType}:
        return any(_may_hold(kinds, each) for each in arguments if each is not NoneType)
    if not any(_fits(each, wanted) for each in kinds):
        return False
    if len(kinds) == 1:  # the elements' classes are unknown
        return True
    is_container = owner in {list, dict} or getattr(owner, "__module__", "") == "collections.abc"
    return not is_container or all(_may_hold(kinds, each) for each in arguments)


def _element(wanted: Any, *, is_list: bool) -> Any:  # noqa: ANN401 - an annotation
    """Return the annotation of one message; of a list's elements, None when it is no list."""
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    if not is_list or wanted is inspect.Parameter.empty or wanted is Any:
        return wanted
    owner = get_origin(wanted) or wanted
    if not isinstance(owner, type) or owner is UnionType:
        return Any
    if not _fits(list, owner):
        return None
    return next(iter(get_args(wanted)), Any)


def _fits(given: type, wanted: Any) -> bool:  # noqa: ANN401 - an annotation
    """Return whether an annotation may describe an instance of a class; True when unsure."""
    if wanted is None:
        return False
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    if get_origin(wanted) in {Union, UnionType}:
        return any(_fits(given, each) for each in get_args(wanted))
    owner = get_origin(wanted) or wanted
    if not isinstance(owner, type) or owner in {Any, inspect.Parameter.empty}:
        return True
    if getattr(owner, "_is_protocol", False):
        return True
    if is_typed_dict(owner):
        return given is dict
    return issubclass(owner, given) or issubclass(given, owner)


def _is_class(kind: Any) -> bool:  # noqa: ANN401
    plain = isinstance(kind, type) and not get_args(kind) and not is_typed_dict(kind)
    return plain and kind not in {Any, inspect.Parameter.empty}


def _name(kind: Any) -> str:  # noqa: ANN401
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
