"""Reading the header fields of an admin request, and writing its response."""

from collections.abc import Mapping
from typing import Any

from rocketpy.errors import BadBodyError, HeaderFieldError
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.fastjson import check_quick, dumps, loads
from rocketpy.proto.headers.base import parse_bool, parse_int64


def required(request: RemotingCommand, name: str) -> str:
    """A text field that must be there (it may be empty).

    Raises:
        HeaderFieldError: it is not there.
    """
    value = request.ext_fields.get(name)
    if value is None:
        raise HeaderFieldError(name, "is missing")
    return value


def optional(request: RemotingCommand, name: str) -> str:
    """A text field, empty when it is not there."""
    return request.ext_fields.get(name) or ""


def integer(request: RemotingCommand, name: str, default: int | None = None) -> int:
    """A 64-bit number.

    Args:
        request: the request.
        name: wire name of the field.
        default: value of a missing field; None makes the field required.

    Raises:
        HeaderFieldError: it is missing and has no default, or it is not such a number.
    """
    text = request.ext_fields.get(name)
    if text is None or (not text and default is not None):
        if default is None:
            raise HeaderFieldError(name, "is missing")
        return default
    return parse_int64(name, text)


def boolean(request: RemotingCommand, name: str, *, default: bool = False) -> bool:
    """A flag: ``true`` in any case is true, everything else is false."""
    text = request.ext_fields.get(name)
    return default if text is None else parse_bool(name, text)


def body_object(request: RemotingCommand) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        BadBodyError: it is not one.
    """
    check_quick(request.body)
    value = loads(request.body)
    if not isinstance(value, dict):
        raise BadBodyError("the body is not a JSON object")
    return value


def ok(
    request: RemotingCommand, value: object = None, ext: dict[str, str] | None = None
) -> RemotingCommand:
    """Success; `value` (None: no body) becomes the JSON body."""
    body = b"" if value is None else dumps(value)
    return make_response(request, ResponseCode.SUCCESS, None, ext, body)


def ok_bytes(
    request: RemotingCommand, body: bytes, ext: Mapping[str, str] | None = None
) -> RemotingCommand:
    """Success with a body that is ready."""
    return make_response(request, ResponseCode.SUCCESS, None, dict(ext or {}), body)


def refuse(request: RemotingCommand, code: ResponseCode, remark: str) -> RemotingCommand:
    """Failure with the words for it."""
    return make_response(request, code, remark)
