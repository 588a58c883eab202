"""Sends in bytes, compiled and by the reference: cases for the tests and for fuzzing."""

import random
import struct

import msgpack  # type: ignore[import-untyped]

from rocketpy.client.sending.result import read_send_response, result_of
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.proto.wire.compiled_requests import CompiledSends
from rocketpy.proto.wire.frame import MAX_FRAME_BYTES, CommandReader, decode_command
from rocketpy.proto.wire.request_template import RequestTemplate

JSON, ROCKETMQ, MSGPACK = 0, 1, 2
QUEUE = MessageQueue("t", "b", 2)
ID = "7F00000100002A9F0000000000001234"
_NAMES = ("msgId", "queueId", "queueOffset", "MSG_REGION", "transactionId", "recallHandle",
          "TRACE_ON", "batchUniqId")  # fmt: skip
_SAFE = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"\\')
_ODD = ["é", '"', "\\", "\x01", "\n", "\x7f", "\u2028", "\U0001f600", "\b\t\f\r", "\x00", "\x1f"]
_NUMBERS = ["0", "1", "007", "-1", "+1", "", "x", "٣", "9" * 9, "9" * 10, "9" * 18, "9" * 19]
_OPAQUES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 0x7FFFFFFF]


def plain_answer(rng: random.Random) -> RemotingCommand:
    """Return an answer that is read compiled."""
    fields = {
        "msgId": rng.choice([ID, f"{ID},{ID}", "", ID * 300]),
        "queueId": str(rng.choice([0, 2, 3, 10**9 - 1])),
        "queueOffset": str(rng.choice([0, 7, 10**18 - 1])),
    }
    for name in _NAMES[3:]:
        if rng.random() < 0.5:
            text = "".join(rng.choices(_SAFE, k=rng.choice([1, 5, 13, 31, 32, 300, 70_000])))
            fields[name] = rng.choice([text, "DefaultRegion", "true"])
    names = rng.sample(sorted(fields), len(fields))
    answer = make_response(make_request(310), 0, None, {name: fields[name] for name in names})
    answer.opaque = rng.choice([*_OPAQUES, rng.randrange(1 << 31)])
    answer.language = rng.randrange(13)
    answer.version = rng.choice([0, 127, 128, 493, 0x7FFFFFFF])
    answer.serialize_type = rng.choice([JSON, MSGPACK])
    return answer


def in_full_width(answer: RemotingCommand) -> bytes:
    """Return an answer's frame with MSGPACK as a broker writes it that fills in a template."""
    answer.serialize_type = MSGPACK
    short = encode_command(answer)
    begin = msgpack.packb([answer.code, answer.language, answer.version, answer.opaque])
    rest = short[8 + len(begin) :]
    assert short[9 : 8 + len(begin)] == begin[1:]
    header = struct.pack(">BBHB", 0x97, 0xCD, answer.code, answer.language)
    header += (
        b"\xce" + struct.pack(">I", answer.version) + b"\xd2" + struct.pack(">i", answer.opaque)
    )
    header += rest
    return struct.pack(">iI", 4 + len(header), MSGPACK << 24 | len(header)) + header


def odd_answer(rng: random.Random) -> RemotingCommand:
    """Return an answer that is changed somewhere."""
    answer = plain_answer(rng)
    fields = answer.ext_fields
    change = rng.randrange(10)
    if change == 0:
        answer.code = rng.choice([1, 10, 17, -1])
    elif change == 1:
        answer.flag = rng.choice([0, 2, 3])
    elif change == 2:
        answer.remark = rng.choice(["", "words"])
    elif change == 3:
        answer.body = b"body"
    elif change == 4:
        answer.serialize_type = ROCKETMQ
    elif change == 5:
        fields.pop(rng.choice(list(fields)))
    elif change == 6:
        fields[rng.choice(["rocketpy", "other", "msgI", ""])] = "msgpack"
    elif change == 7:
        fields[rng.choice(["queueId", "queueOffset"])] = rng.choice(_NUMBERS)
    elif change == 8:
        fields[rng.choice(list(fields))] = "".join(rng.choices([*_ODD, "a"], k=rng.randrange(4)))
    else:
        answer.ext_fields = {}
    return answer


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes that are changed, cut, doubled or have more among them."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) or 1)
        change = rng.randrange(5)
        if change == 0 and found:
            found[at] = rng.choice([0, 1, 0x7F, 0x80, 0xA0, 0xBF, 0xD9, 0xDA, 0xDB, 0xFF, 34, 92])
        elif change == 1 and found:
            found[at] ^= 1 << rng.randrange(8)
        elif change == 2:
            del found[at:]
        elif change == 3:
            found[at:at] = rng.randbytes(rng.randrange(5))
        else:
            del found[at : at + rng.randrange(1, 5)]
    return bytes(found)


def compare_answers(compiled: CompiledSends, data: bytes, limit: int = MAX_FRAME_BYTES) -> int:
    """Read bytes both ways; return how many the compiled one took."""
    size, answers = compiled.read_answers(data, limit)
    reader = CommandReader(limit)
    commands = reader.feed(data[:size])
    assert reader.error is None
    assert reader.pending_bytes == 0
    assert len(commands) == len(answers)
    begin = 0
    for answer, command in zip(answers, commands, strict=True):
        assert command == decode_command(data[begin : answer[1]])
        assert (command.flag, command.code, command.opaque) == (1, 0, answer[0])
        assert result_of(answer, QUEUE, "ID") == read_send_response(command, QUEUE, "ID")
        begin = answer[1]
    assert begin == size
    return size


def compare_frame(compiled: CompiledSends, rng: random.Random) -> int:
    """Draw a request both ways; return how many bytes it has."""
    pairs = [(rng.choice(["a", "é", '"']) * n, rng.choice(["v", "\x02", ""])) for n in range(1, 4)]
    at = rng.randrange(4)
    fields = dict([*pairs[:at], ("g", ""), ("i", ""), *pairs[at:]])
    template = RequestTemplate(rng.choice([310, 320, 7]), fields, time="g", text="i")
    letters = rng.choice([_SAFE, [*_SAFE, *_ODD], [*_ODD, "\ud800"]])
    text = "".join(rng.choices(letters, k=rng.choice([0, 1, 31, 32, 255, 256, 65_536])))
    opaque = rng.choice([*_OPAQUES, rng.randrange(1 << 31)])
    time_ms, body = (
        rng.choice([0, 9, 1_763_000_000_000, 2**63 - 1]),
        rng.randbytes(rng.randrange(9)),
    )
    kind = rng.choice([JSON, MSGPACK])
    draw = template.msgpack_frame if kind else template.json_frame
    parts = template.make_parts(kind)
    drawn = compiled.frame(kind, parts, opaque, time_ms, text, body)
    if "\ud800" in text:
        assert drawn is None
        return 0
    assert drawn == draw(opaque, time_ms, text, body)
    return len(drawn)


def compare(compiled: CompiledSends, seed: int) -> int:
    """Do both with what a seed says; return how many bytes were drawn or read."""
    rng = random.Random(seed)
    served = compare_frame(compiled, rng)
    frames = [
        encode_command(rng.choice([plain_answer, plain_answer, plain_answer, odd_answer])(rng))
        for _ in range(rng.randrange(1, 6))
    ]
    frames.append(in_full_width(plain_answer(rng)))
    data = b"".join(frames)
    served += compare_answers(compiled, data)
    served += compare_answers(compiled, data[: rng.randrange(len(data) + 1)])
    served += compare_answers(compiled, data, rng.randrange(4, 2 * len(frames[0]) + 8))
    at = rng.randrange(len(frames))
    before, behind = b"".join(frames[:at]), b"".join(frames[at + 1 :])
    return served + compare_answers(compiled, before + damaged(rng, frames[at]) + behind)
