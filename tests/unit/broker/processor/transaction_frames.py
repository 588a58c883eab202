"""Half messages and the ends of transactions, as usual and odd, for both ways through a broker."""

import random
from collections.abc import Sequence

from rocketpy.proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from tests.unit.broker.processor.frames import binary_frame, ext_of, frame, msgpack_frame

GROUP = "group"
UNIQ_KEY = "7F00000100002A139A1F0000{:08X}"
_SEND_V2 = 310
_END = 37
_ONEWAY = 2
_LONG = "v" * 32_450
_ODD_PAIRS = (
    ("DELAY", "3"),
    ("TIMER_DELAY_SEC", "5"),
    ("CHECK_IMMUNITY_TIME_IN_SECONDS", "30"),
    ("CHECK_IMMUNITY_TIME_IN_SECONDS", "-1"),
    ("REAL_TOPIC", "second"),
    ("REAL_QID", "2"),
    ("__transactionId__", "mine"),
    ("TRANSACTION_CHECK_TIMES", "3"),
    ("TRAN_PREPARED_QUEUE_OFFSET", "0"),
    ("CLUSTER", "mine"),
    ("long", _LONG),
    ("long", _LONG[:-100]),
    ("TIMER", "DELAY"),
)


def half_properties(rng: random.Random, number: int, odd: float = 0.0) -> str:
    """Properties of a half message."""
    pairs = [("UNIQ_KEY", UNIQ_KEY.format(number)), ("WAIT", "true"), ("PGROUP", GROUP)]
    pairs.append(("TRAN_MSG", "true"))
    if rng.random() < 0.3:
        pairs.append(("TAGS", rng.choice(("TagA", "日本"))))
    if rng.random() < 0.3:
        pairs.append(("KEYS", rng.choice(("k", "k1 k2"))))
    if rng.random() < 0.3 * odd:
        pairs.append(rng.choice(_ODD_PAIRS))
    if rng.random() < 0.1 * odd:
        at = rng.randrange(4)
        pairs[at] = (pairs[at][0], rng.choice(("", "TRUE", "false", "other", GROUP)))
    if rng.random() < 0.1 * odd:
        pairs.pop(rng.randrange(4))
    rng.shuffle(pairs)
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def some_half(rng: random.Random, number: int, odd: float) -> bytes:
    """A half message, with a probability something like it."""
    fields = {"f": str(TRANSACTION_PREPARED)}
    if rng.random() < 0.1 * odd:
        fields["f"] = rng.choice(("0", "5", "8", "12", "20"))
    if rng.random() < 0.1 * odd:
        fields["j"] = rng.choice(("1", "2"))
    if rng.random() < 0.05 * odd:
        fields["m"] = "true"
    topic = "first" if rng.random() > 0.3 else rng.choice(("second", "unknown", "%RETRY%group"))
    ext = ext_of(topic, rng.randrange(4), half_properties(rng, number, odd)) | fields
    body = rng.randbytes(rng.choice((0, 8, 100, 100, 3_000)))
    return _written(rng, _SEND_V2, ext, body, number, _ONEWAY * (rng.random() < 0.1 * odd))


def _written(
    rng: random.Random, code: int, ext: dict[str, str], body: bytes, opaque: int, flag: int
) -> bytes:
    write = rng.choice((None, binary_frame, msgpack_frame))
    if write is None:
        return frame(code, ext, body, opaque, flag=flag)
    return write(code, ext, body, opaque, flag)


def end_ext(answer: RemotingCommand) -> dict[str, str]:
    """Header fields of the commit of what a response says was stored."""
    fields = answer.ext_fields
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": fields["queueOffset"],
        "commitLogOffset": str(int(fields["msgId"][-16:], 16)),
        "commitOrRollback": str(TRANSACTION_COMMIT),
        "fromTransactionCheck": "false",
        "msgId": fields.get("transactionId", ""),
        "transactionId": fields.get("transactionId", ""),
        "topic": "first",
        "bname": "broker-a",
    }


def some_end(rng: random.Random, answer: RemotingCommand, opaque: int, odd: float) -> bytes:
    """A commit, with a probability another end, or an impossible one."""
    ext, flag = end_ext(answer), _ONEWAY
    if rng.random() < 0.3 * odd:
        name = rng.choice(list(ext))
        ext[name] = rng.choice(
            ("", "0", "-1", "7", "true", "other", str(int(ext["commitLogOffset"]) + 1), "9" * 18)
        )
    if rng.random() < 0.2 * odd:
        ext["commitOrRollback"] = str(rng.choice((TRANSACTION_ROLLBACK, 0, 4)))
    if rng.random() < 0.1 * odd:
        del ext[rng.choice(list(ext))]
    if rng.random() < 0.1 * odd:
        flag = rng.choice((0, 1, 3))
    return _written(rng, _END, ext, rng.choice((b"", b"", b"body")), opaque, flag)


def answers_in(responses: Sequence[bytes]) -> list[RemotingCommand]:
    """The responses that say where a single message was stored."""
    answers = [each for data in responses for each in CommandReader().feed(data.removesuffix(b"!"))]
    # A batch has the ids of all its messages.
    return [
        each for each in answers if each.code == 0 and "," not in each.ext_fields.get("msgId", ",")
    ]
