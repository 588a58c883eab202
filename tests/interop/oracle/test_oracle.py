"""Apache's own classes as the judge of ours, with other cases than the golden ones."""

import base64
import random

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.client.credentials import Credentials, RequestSigner
from rocketpy.proto.namespace import unwrap_namespace, wrap_namespace
from rocketpy.proto.subscription import build_subscription
from rocketpy.proto.trace import encode_trace
from rocketpy.proto.wire.command import make_request
from rocketpy.sql92.bloom import BloomFilter
from rocketpy.store.files.json_file import dump_pretty
from rocketpy.testing.sim_clock import SimClock
from tests.golden.sql92.answers import answer
from tests.golden.sql92.generator import cases
from tests.golden.sql92.make import question
from tests.interop.oracle.jar import ask, word
from tests.unit.proto.test_trace import CASES

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_conditions_mean_what_they_mean_to_apache() -> None:
    made = list(cases(seed=20_261_122, count=4_000))
    answers = ask(question(*case) for case in made)
    assert {"E", "T", "F", "N", "X"} == set(answers)
    different = [
        (case, expected)
        for case, expected in zip(made, answers, strict=True)
        if answer(*case) != expected
    ]
    assert not different


def test_bits_are_where_apache_has_them() -> None:
    rng = random.Random(3)
    cases = [
        (
            rng.choice([1, 5, 20, 50, 90]),
            rng.choice([1, 32, 1_000]),
            "".join(rng.choices("abXY#é漢%_-", k=rng.randint(0, 60))),
        )
        for _ in range(200)
    ]
    answers = ask(f"bloom {error} {groups} {word(text)}" for error, groups, text in cases)
    for (error, groups, text), expected in zip(cases, answers, strict=True):
        bloom = BloomFilter(error, groups)
        numbers = (bloom.bit_count, bloom.hash_count, *bloom.positions_of(text))
        assert " ".join(map(str, numbers)) == expected


class _Kept:
    value: object = None

    def load(self) -> object:
        return self.value

    def save(self, value: object) -> None:
        self.value = value


def test_apache_reads_our_file_of_conditions() -> None:
    config = BrokerConfig(broker_name="b", expect_consumer_num_use_filter=64)
    filters = ConsumerFilters(config, _Kept(), SimClock())
    for group in ("g", "gone"):
        wanted = build_subscription("T", "a > 5 AND b = 'x''y'", "SQL92", sub_version=7)
        filters.register(group, [wanted])
    filters.unregister("gone")
    (answer,) = ask([f"filters {word(dump_pretty(filters.to_json()))}"])
    entry = "|a > 5 AND b = 'x''y'|true|true"
    assert set(answer.split(";")) == {"", f"T|g{entry}", f"T|gone{entry}"}


def test_signatures_are_those_of_the_official_hook() -> None:
    rng = random.Random(4)
    made: list[tuple[Credentials, dict[str, str], bytes]] = []
    for _ in range(100):
        texts = ["".join(rng.choices("abZ-_/é漢%1", k=rng.randint(1, 20))) for _ in range(8)]
        token = texts[2] if rng.random() < 0.5 else ""
        fields = dict(zip(["topic", "a", "B", "queueId"], texts[3:7], strict=True))
        made.append(
            (Credentials(texts[0], texts[1], token), fields, rng.randbytes(rng.randint(0, 99)))
        )
    questions = [
        " ".join(
            [
                "sign",
                *map(word, (account.access_key, account.secret_key, account.security_token)),
                word("\n".join(f"{name}={value}" for name, value in fields.items())),
                base64.b64encode(body).decode(),
            ]
        )
        for account, fields, body in made
    ]
    for (account, fields, body), expected in zip(made, ask(questions), strict=True):
        request = make_request(14, dict(fields), body)
        RequestSigner(account).before_request("a:1", request)
        assert request.ext_fields["Signature"] == expected


def test_trace_records_are_read_and_written_alike() -> None:
    ours = "".join(encode_trace(record) for record, _ in CASES)
    (answer,) = ask([f"trace {word(ours)}"])
    assert base64.b64decode(answer).decode() == ours


def test_names_in_a_namespace_are_those_of_the_official_client() -> None:
    rng = random.Random(5)
    parts = ["ns", "n", "%", "%RETRY%", "%DLQ%", "T", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "TBW102"]
    parts += ["CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "SCHEDULE_TOPIC_XXXX", "ns%T"]
    cases = [
        (rng.choice(["ns", "n", "MQ_INST_1"]), "".join(rng.choices(parts, k=rng.randint(1, 3))))
        for _ in range(400)
    ]
    answers = ask(f"namespace {word(namespace)} {word(name)}" for namespace, name in cases)
    different = [
        (case, expected)
        for case, expected in zip(cases, answers, strict=True)
        if f"{wrap_namespace(*case)} {unwrap_namespace(*case)}" != expected
    ]
    assert not different
