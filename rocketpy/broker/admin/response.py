"""Responses to admin requests."""

from rocketpy.proto.headers.base import Header
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.proto.wire.json_body import Body


def ok(
    request: RemotingCommand, body: Body | bytes = b"", header: Header | None = None
) -> RemotingCommand:
    """Return the response to a successful request."""
    ext_fields = {} if header is None else header.to_ext()
    data = body if isinstance(body, bytes) else body.encode()
    return make_response(request, ResponseCode.SUCCESS, None, ext_fields, data)


def refuse(request: RemotingCommand, code: ResponseCode, remark: str) -> RemotingCommand:
    """Return the response to a refused request, with the reason."""
    return make_response(request, code, remark)
