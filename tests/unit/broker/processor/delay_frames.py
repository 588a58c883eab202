"""Messages with a delay level, as usual and odd, for both ways through a broker."""

import random

from tests.unit.broker.processor.frames import binary_frame, ext_of, frame, msgpack_frame

UNIQ_KEY = "7F00000100002A139A1F0000{:08X}"
LEVELS = ("1", "1", "2", "3", "18")
_ODD_LEVELS = ("0", "-1", "19", "64", "65", "007", "+3", " 1", "1.0", "x", "2147483648", "9" * 19)
_ODD_PAIRS = (
    ("TIMER_DELAY_SEC", "5"),
    ("TIMER_DELIVER_MS", "x"),
    ("REAL_TOPIC", "second"),
    ("REAL_QID", "2"),
    ("TRAN_MSG", "true"),
    ("TRAN_MSG", "false"),
    ("CLUSTER", "mine"),
    ("POP_CK", "1"),
    ("DELAY", "2"),
    ("empty", ""),
    ("long", "v" * 32_450),
    ("long", "v" * 32_600),
)


def delay_properties(rng: random.Random, number: int, odd: float = 0.0) -> str:
    """Properties of a message that waits."""
    pairs = [("UNIQ_KEY", UNIQ_KEY.format(number)), ("WAIT", "true"), ("DELAY", rng.choice(LEVELS))]
    if rng.random() < 0.3:
        pairs.append(("TAGS", rng.choice(("TagA", "日本"))))
    if rng.random() < 0.3:
        pairs.append(("KEYS", rng.choice(("k", "k1 k2"))))
    if rng.random() < 0.2 * odd:
        pairs[2] = ("DELAY", rng.choice(_ODD_LEVELS))
    if rng.random() < 0.3 * odd:
        pairs.append(rng.choice(_ODD_PAIRS))
    if rng.random() < 0.05 * odd:
        pairs[1] = ("WAIT", "false")
    if rng.random() < 0.05 * odd:
        pairs.pop(0)
    rng.shuffle(pairs)
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def some_delayed(rng: random.Random, number: int, odd: float) -> bytes:
    """A message that waits, with a probability something like it."""
    fields = {}
    if rng.random() < 0.1 * odd:
        fields["f"] = rng.choice(("1", "4", "8", "12", "16"))
    if rng.random() < 0.1 * odd:
        fields["j"] = rng.choice(("1", "2"))
    if rng.random() < 0.05 * odd:
        fields["m"] = "true"
    topics = ("second", "unknown", "%RETRY%group", "SCHEDULE_TOPIC_XXXX")
    topic = "first" if rng.random() > 0.3 * odd else rng.choice(topics)
    ext = ext_of(topic, rng.randrange(4), delay_properties(rng, number, odd)) | fields
    body = rng.randbytes(rng.choice((0, 8, 100, 100, 3_000)))
    flag = 2 * (rng.random() < 0.1)
    write = rng.choice((None, binary_frame, msgpack_frame))
    if write is None:
        return frame(310, ext, body, number, flag=flag)
    return write(310, ext, body, number, flag)
