"""The response to a pull: a head from a template, then one copy of the record bytes.

Step 27 of a message's life (docs/ARCHITECTURE.md).

Source: PullMessageResponseHeader.java, PullMessageProcessor.composeResponseHeader (5.4.0).
"""

import struct
from typing import Final

from rocketpy.proto.codes import RPC_VERSION, LanguageCode
from rocketpy.proto.command import RemotingCommand, encode_head, make_response
from rocketpy.store.results import GetMessageResult

_JSON: Final = 0
_PREFIX: Final = struct.Struct(">iI")
_TEMPLATE: Final = (
    b'{"code":%d,"extFields":{"groupSysFlag":"%d","maxOffset":"%d","minOffset":"%d",'
    b'"nextBeginOffset":"%d","suggestWhichBrokerId":"%d","topicSysFlag":"%d"},"flag":1,'
    b'"language":"' + LanguageCode.PYTHON.name.encode() + b'","opaque":%d,"remark":"'
    b'%b","serializeTypeCurrentRPC":"JSON","version":' + str(RPC_VERSION).encode() + b"}"
)


def pull_frame(
    request: RemotingCommand,
    code: int,
    result: GetMessageResult,
    *,
    suggested_broker_id: int,
    topic_sys_flag: int,
    group_sys_flag: int,
) -> bytes:
    """The whole answer, bodies included.

    Args:
        request: gives the opaque and the header type.
        code: of the response.
        result: offsets, and the records when something was found.
        suggested_broker_id: whom to ask next, 0 the master.
        topic_sys_flag: of the topic.
        group_sys_flag: of the group.
    """
    buffers = result.buffers
    head = pull_head(
        request,
        code,
        result,
        body_bytes=result.size_bytes if buffers else 0,
        suggested_broker_id=suggested_broker_id,
        topic_sys_flag=topic_sys_flag,
        group_sys_flag=group_sys_flag,
    )
    return b"".join((head, *buffers))


def pull_head(
    request: RemotingCommand,
    code: int,
    result: GetMessageResult,
    *,
    body_bytes: int,
    suggested_broker_id: int,
    topic_sys_flag: int,
    group_sys_flag: int,
) -> bytes:
    """The answer up to the bodies; see `pull_frame`.

    Args:
        request: gives the opaque and the header type.
        code: of the response.
        result: offsets; its records follow.
        body_bytes: of the records.
        suggested_broker_id: whom to ask next, 0 the master.
        topic_sys_flag: of the topic.
        group_sys_flag: of the group.
    """
    remark = result.status.value
    if request.serialize_type == _JSON:
        header = _TEMPLATE % (
            code,
            group_sys_flag,
            result.max_offset,
            result.min_offset,
            result.next_begin_offset,
            suggested_broker_id,
            topic_sys_flag,
            request.opaque,
            remark.encode(),
        )
        size = len(header)
        return _PREFIX.pack(4 + size + body_bytes, size) + header
    ext_fields = {
        "groupSysFlag": str(group_sys_flag),
        "maxOffset": str(result.max_offset),
        "minOffset": str(result.min_offset),
        "nextBeginOffset": str(result.next_begin_offset),
        "suggestWhichBrokerId": str(suggested_broker_id),
        "topicSysFlag": str(topic_sys_flag),
    }
    return encode_head(make_response(request, code, remark, ext_fields), body_bytes)
