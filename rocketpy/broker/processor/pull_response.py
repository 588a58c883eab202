"""Encoder of responses to pulls: a header from a template, then one copy of the records.

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
    suggested_broker_id: int = 0,
) -> bytes:
    """Return the complete response frame, records included.

    Args:
        request: source of the opaque and the header type.
        code: response code.
        result: offsets, and the records if any were found.
        topic_sys_flag: system flag of the topic.
        group_sys_flag: system flag of the group.
        suggested_broker_id: broker to pull from next.
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
        suggested_broker_id=suggested_broker_id,
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
    suggested_broker_id: int = 0,
) -> bytes:
    """Return the frame up to the records.

    Args:
        opaque: opaque of the request.
        serialize_type: header type of the request.
        code: response code.
        remark: status of the read.
        offsets: end of the queue, its first offset, and the next offset to read.
        sys_flags: system flags of the topic and of the group.
        body_bytes: size of the records, which follow.
        suggested_broker_id: broker to pull from next; the templates have the master's, 0.
    """
    if serialize_type == JSON and not suggested_broker_id:
        header = _TEMPLATE % (code, sys_flags[1], *offsets, sys_flags[0], opaque, remark.encode())
        size = len(header)
        return _PREFIX.pack(4 + size + body_bytes, size) + header
    max_offset, min_offset, next_offset = offsets
    ext_fields = {
        "groupSysFlag": str(sys_flags[1]),
        "maxOffset": str(max_offset),
        "minOffset": str(min_offset),
        "nextBeginOffset": str(next_offset),
        "suggestWhichBrokerId": str(suggested_broker_id),
        "topicSysFlag": str(sys_flags[0]),
    }
    head = RemotingCommand(code, 0, 0, opaque, 0, None, {}, b"", serialize_type)
    return encode_head(make_response(head, code, remark, ext_fields), body_bytes)


def json_parts(code: int, remark: str, sys_flags: tuple[int, int]) -> JsonParts:
    """Return the constant parts of a JSON header, as `pull_head` writes it.

    Args:
        code: response code.
        remark: status of the read.
        sys_flags: system flags of the topic and of the group.

    Returns:
        The text before, between and after the values: end of the queue, first offset, next offset
        to read, and opaque.
    """
    return (
        _PARTS[0] % (code, sys_flags[1]),
        _PARTS[1],
        _PARTS[2],
        _PARTS[3] % sys_flags[0],
        _PARTS[4] % remark.encode(),
    )
