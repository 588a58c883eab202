"""The response to a pull: a head from a template, then one copy of the record bytes.

Source: PullMessageResponseHeader.java, PullMessageProcessor.composeResponseHeader (5.4.0).
"""

import struct
from typing import Final, TypeAlias

from rocketpy.proto.wire.codes import RPC_VERSION, LanguageCode
from rocketpy.proto.wire.command import RemotingCommand, encode_head, make_response
from rocketpy.store.results import GetMessageResult

JSON: Final = 0
_PREFIX: Final = struct.Struct(">iI")
_PARTS: Final = (
    b'{"code":%d,"extFields":{"groupSysFlag":"%d","maxOffset":"',
    b'","minOffset":"',
    b'","nextBeginOffset":"',
    b'","suggestWhichBrokerId":"0","topicSysFlag":"%d"},"flag":1,"language":"'
    + LanguageCode.PYTHON.name.encode()
    + b'","opaque":',
    b',"remark":"%b","serializeTypeCurrentRPC":"JSON","version":'
    + str(RPC_VERSION).encode()
    + b"}",
)
_TEMPLATE: Final = b"%d".join(_PARTS)
JsonParts: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes]


def pull_frame(
    request: RemotingCommand,
    code: int,
    result: GetMessageResult,
    *,
    topic_sys_flag: int,
    group_sys_flag: int,
) -> bytes:
    """The whole answer, bodies included.

    Args:
        request: gives the opaque and the header type.
        code: of the response.
        result: offsets, and the records when something was found.
        topic_sys_flag: of the topic.
        group_sys_flag: of the group.
    """
    buffers = result.buffers
    head = pull_head(
        request.opaque,
        request.serialize_type,
        code,
        result.status.remark,
        (result.max_offset, result.min_offset, result.next_begin_offset),
        (topic_sys_flag, group_sys_flag),
        body_bytes=result.size_bytes if buffers else 0,
    )
    return b"".join((head, *buffers))


def pull_head(  # noqa: PLR0917 - the fields of a header, at each pull
    opaque: int,
    serialize_type: int,
    code: int,
    remark: str,
    offsets: tuple[int, int, int],
    sys_flags: tuple[int, int],
    body_bytes: int,
) -> bytes:
    """The answer up to the bodies; it says that the master is the one to ask next, too.

    Args:
        opaque: of the request.
        serialize_type: of the request's header.
        code: of the response.
        remark: says what was found.
        offsets: last of the queue, first, and next to be read.
        sys_flags: of the topic and of the group.
        body_bytes: of the records, which follow.
    """
    if serialize_type == JSON:
        header = _TEMPLATE % (code, sys_flags[1], *offsets, sys_flags[0], opaque, remark.encode())
        size = len(header)
        return _PREFIX.pack(4 + size + body_bytes, size) + header
    max_offset, min_offset, next_offset = offsets
    ext_fields = {
        "groupSysFlag": str(sys_flags[1]),
        "maxOffset": str(max_offset),
        "minOffset": str(min_offset),
        "nextBeginOffset": str(next_offset),
        "suggestWhichBrokerId": "0",
        "topicSysFlag": str(sys_flags[0]),
    }
    head = RemotingCommand(code, 0, 0, opaque, 0, None, {}, b"", serialize_type)
    return encode_head(make_response(head, code, remark, ext_fields), body_bytes)


def json_parts(code: int, remark: str, sys_flags: tuple[int, int]) -> JsonParts:
    """A header in JSON as `pull_head` writes it, but three offsets and the opaque.

    Args:
        code: of the response.
        remark: says what was found.
        sys_flags: of the topic and of the group.

    Returns:
        What stands before, between and behind the last offset of the queue, the first, the next one
        to be read, and the opaque.
    """
    return (
        _PARTS[0] % (code, sys_flags[1]),
        _PARTS[1],
        _PARTS[2],
        _PARTS[3] % sys_flags[0],
        _PARTS[4] % remark.encode(),
    )
