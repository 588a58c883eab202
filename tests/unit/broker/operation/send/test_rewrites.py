"""Cached rewrites store the same bytes as the put transforms."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.transaction.half_message import HalfMessages
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC
from tests.unit.broker.fakes import FakeClock
from tests.unit.broker.operation.send.test_send import HOST, UNIQ, Kit

DELAYS_MS = (1_000, 5_000, 10_000)
DELAYED = {"UNIQ_KEY": UNIQ, "WAIT": "true", "DELAY": "2", "TAGS": "a"}
HALF = {"TRAN_MSG": "true", "UNIQ_KEY": UNIQ, "WAIT": "true", "PGROUP": "p"}
OTHER = UNIQ.replace("F", "E")


class _Kit(Kit):
    def __init__(self) -> None:
        self.halves = HalfMessages(BrokerConfig(), "10.0.0.2")
        super().__init__(self.halves, MessageScheduler(DELAYS_MS, FakeClock()))
        self.send()
        self.store.puts.clear()

    def short(
        self, properties: bytes, sys_flag: int = 0, queue_id: int = 1, tries: int = 0
    ) -> bool:
        """Send the short way; whether it was one."""
        known = self.operation.known["T"]
        request = SendRequest("T", queue_id, b"x", properties, HOST, "", 3, sys_flag, 5, tries)
        sent = self.operation.send_plain(known, request)
        assert not isinstance(sent, Refusal)
        return sent is not None

    def long(self, properties: bytes, sys_flag: int = 0, queue_id: int = 1, tries: int = 0) -> bool:
        """Send the long way; whether it was taken."""
        sent = self.send(
            properties=properties, sys_flag=sys_flag, queue_id=queue_id, flag=3,
            reconsume_times=tries,
        )  # fmt: skip
        return isinstance(sent, Sent)


@pytest.mark.parametrize(
    ("properties", "sys_flag"),
    [
        (DELAYED, 0),
        ({**DELAYED, "DELAY": "9"}, 1),
        ({**DELAYED, "DELAY": "0", "KEYS": "a b"}, 0),
        ({**DELAYED, "WAIT": "false"}, 0),
        (HALF, 4),
        ({**HALF, "TAGS": "b", "KEYS": "k", "x": "ü"}, 0x304),
        ({**HALF, "DELAY": "2"}, 4),
        ({**HALF, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, 4),
    ],
)
def test_rewrite_cache_equals_transforms(properties: dict[str, str], sys_flag: int) -> None:
    kit = _Kit()
    for uniq_key in (UNIQ, OTHER):  # learned, and remembered
        for queue_id in (1, 2):
            encoded = encode_properties({**properties, "UNIQ_KEY": uniq_key})
            assert kit.short(encoded, sys_flag, queue_id)
            assert kit.long(encoded, sys_flag, queue_id)
            short, long = kit.store.puts[-2:]
            assert short == long
            assert uniq_key in short.properties.decode()


@pytest.mark.parametrize(
    ("properties", "sys_flag", "tries"),
    [
        ({**DELAYED, "TIMER_DELAY_SEC": "3"}, 0, 0),
        ({**DELAYED, "POP_CK": "x"}, 0, 0),
        ({**DELAYED, "CLUSTER": "other"}, 0, 0),
        ({**DELAYED, "DELAY": "x"}, 0, 0),
        ({**DELAYED, "UNIQ_KEY": "short"}, 0, 0),
        (DELAYED, 0, 1),
        ({name: HALF[name] for name in ("TRAN_MSG", "UNIQ_KEY")}, 4, 0),
        ({**HALF, "TRAN_MSG": "false"}, 4, 0),
    ],
)
def test_rewrite_cache_skips_timed_and_retried_messages(
    properties: dict[str, str], sys_flag: int, tries: int
) -> None:
    kit = _Kit()
    for _ in range(2):
        assert not kit.short(encode_properties(properties), sys_flag, tries=tries)
    assert kit.store.puts == []


def test_rewrite_cache_invalid_body_or_queue_uses_general_path() -> None:
    kit = _Kit()
    encoded = encode_properties(DELAYED)
    known = kit.operation.known["T"]
    assert not kit.short(encoded, queue_id=4)
    request = SendRequest("T", 0, b"x" * 1_001, encoded, HOST, "", 0, 0, 5)
    assert kit.operation.send_plain(known, request) is None
    assert kit.store.puts == []


def test_rewrite_cache_half_is_counted_for_real_topic() -> None:
    kit = _Kit()
    told: list[str] = []
    kit.operation._stored_elsewhere = {TRANS_HALF_TOPIC: told.append}
    assert kit.short(encode_properties(HALF), 4)
    assert kit.short(encode_properties(DELAYED))
    assert told == ["T"]


def test_rewrite_cache_changed_settings_apply() -> None:
    kit = _Kit()
    encoded = encode_properties(HALF)
    assert kit.short(encoded, 4)
    kit.halves.configure(BrokerConfig(reject_transaction_message=True))
    kit.operation.rewrites.clear()
    assert not kit.short(encoded, 4)
    assert not kit.long(encoded, 4)
    kit.halves.configure(BrokerConfig())
    kit.operation.configure(BrokerConfig(broker_name="b", region_id="elsewhere"))
    assert kit.short(encoded, 4)
    assert parse_properties(kit.store.puts[-1].properties)["MSG_REGION"] == "elsewhere"


_NAMES = ["UNIQ_KEY", "TRAN_MSG", "PGROUP", "DELAY", "TAGS", "KEYS", "WAIT", "x", "REAL_TOPIC"]
_NAMES += [
    "__transactionId__",
    "TRANSACTION_CHECK_TIMES",
    "CLUSTER",
    "TIMER_DELIVER_MS",
    "REAL_QID",
]
_VALUES = [UNIQ, OTHER, "true", "2", "0", "-1", "p", "\0", "ü", ""]
_PAIRS = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES))


@given(st.lists(_PAIRS, max_size=7), st.sampled_from([0, 4, 8, 12]), st.sampled_from(["", "\x02"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rewrite_cache_any_properties_equal_transforms(
    pairs: list[tuple[str, str]], sys_flag: int, end: str
) -> None:
    kit = _Kit()
    text = "\x02".join(f"{name}\x01{value}" for name, value in [("UNIQ_KEY", UNIQ), *pairs]) + end
    for uniq_key in (UNIQ, UNIQ.replace("1", "2")):
        encoded = text.replace(UNIQ, uniq_key).encode()
        message = kit.operation.rewrites.message(
            SendRequest("T", 1, b"x", encoded, HOST, "", 3, sys_flag, 5), 0
        )
        if message is not None:
            assert kit.long(encoded, sys_flag)
            assert message == kit.store.puts[-1]
