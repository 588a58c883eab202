"""Admission of sends, while topics and settings change."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import SendAdmission, TopicSendPolicy
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.store.results import PutMessageStatus
from tests.unit.broker.fakes import FakeClock, MemoryFile


class MeddledTopics(TopicTable):
    """Lets something else happen right after a look at a topic."""

    meddle: Callable[[], object] | None = None

    def get(self, topic: str) -> TopicConfig | None:
        found = super().get(topic)
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return found


class Kit:
    def __init__(self, **config: Any) -> None:
        self.config = BrokerConfig(broker_name="b", broker_cluster_name="C", **config)
        self.clock = FakeClock()
        self.file = MemoryFile()
        self.topics = MeddledTopics(self.config, self.file, self.clock)
        self.reason: str | None = None
        self.shortage: str | None = None
        self.admission = SendAdmission(
            self.topics,
            self.config,
            self.clock,
            max_body_bytes=100,
            unavailable_reason=lambda: self.reason,
            shortage=lambda: self.shortage,
        )
        self.topics.on_change = self.admission.forget

    def admit(self, topic: str, **more: Any) -> TopicSendPolicy | Refusal:
        request = SendRequest(
            topic, 0, b"x", b"", b"", "1.2.3.4:5", 0, 0, 0, template="TBW102", template_queue_nums=4
        )
        return self.admission.admit(request._replace(**more))


def test_admission_policy_is_cached() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 3, 2, topic_filter_type="MULTI_TAG"))
    policy = kit.admit("T")
    assert kit.admission.known["T"] is policy
    assert isinstance(policy, TopicSendPolicy)
    assert policy[1:] == (True, True, True, 3, 2, 0x2, True)


def test_admission_topic_deleted_meanwhile_is_not_cached() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 3, 2))
    kit.topics.meddle = lambda: kit.topics.delete("T")
    kit.admit("T")
    assert "T" not in kit.admission.known
    assert kit.admit("T", template="nothing").code == 17  # type: ignore[union-attr]


def test_admission_topic_changed_meanwhile_is_not_cached() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 3, 3))
    kit.topics.meddle = lambda: kit.topics.put(TopicConfig("T", 1, 1))
    kit.admit("T")
    assert "T" not in kit.admission.known


def test_admission_settings_changed_meanwhile_apply() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 3, 3))
    closed = replace(kit.config, start_accept_send_request_time_stamp=1 << 60)
    kit.topics.meddle = lambda: kit.admission.configure(closed)
    kit.admit("T")
    assert "T" not in kit.admission.known


@pytest.mark.parametrize(
    ("topic", "more", "code"),
    [
        ("T", {}, None),
        ("T", {"template": "BenchmarkTest"}, 17),
        ("", {}, 29),
        ("a/b", {}, 29),
        ("SCHEDULE_TOPIC_XXXX", {}, 16),
        ("%RETRY%g", {"template": "nothing"}, None),
    ],
)
def test_admission_returns_apache_codes(topic: str, more: dict[str, Any], code: int | None) -> None:
    admitted = Kit().admit(topic, **more)
    assert (admitted.code if isinstance(admitted, Refusal) else None) == code


def test_admission_put_without_a_resource_names_it() -> None:
    kit = Kit()
    kit.shortage = "no inode is left on the disk"
    refused = kit.admission.not_stored(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
    assert refused.code == 14
    assert refused.remark == "service not available now. no inode is left on the disk"


def test_admission_new_topic_gets_unit_bits() -> None:
    kit = Kit()
    kit.admit("T", is_unit=True)
    kit.admit("%RETRY%g", is_unit=True)
    assert [kit.topics.all()[name].topic_sys_flag for name in ("T", "%RETRY%g")] == [1, 2]


def test_admission_topic_not_written_is_refused_until_written() -> None:
    kit = Kit()

    def full(value: object) -> None:
        raise DiskFullError("no space for topics.json")

    save, kit.file.save = kit.file.save, full  # type: ignore[method-assign]
    for _ in range(2):
        refused = kit.admit("T")
        assert isinstance(refused, Refusal)
        assert refused.code == 14
        assert "topics.json" in refused.remark
    assert kit.topics.get("T") is None, "nobody may know what a kill would forget"
    kit.file.save = save  # type: ignore[method-assign]
    assert isinstance(kit.admit("T"), TopicSendPolicy)
    assert "T" in kit.file.value["topicConfigTable"]


def test_admission_remarks_contain_limit_and_reason() -> None:
    kit = Kit()
    kit.reason = "a flush failed"
    not_stored = kit.admission.not_stored
    assert "limit 100B" in not_stored(PutMessageStatus.MESSAGE_ILLEGAL).remark
    assert not_stored(PutMessageStatus.SERVICE_NOT_AVAILABLE).remark.endswith("a flush failed")
    assert not_stored(PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL).code == 2
    assert {not_stored(one).code for one in PutMessageStatus} <= {1, 2, 10, 11, 12, 13, 14}


def test_admission_refuses_sends_while_replicas_are_missing() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("T", 1, 1))
    assert isinstance(kit.admit("T"), TopicSendPolicy)
    kit.admission.refuse("in-sync replicas not enough")
    assert kit.admission.known == {}
    assert kit.admit("T") == Refusal(1, "in-sync replicas not enough")
    kit.admission.refuse(None)
    assert isinstance(kit.admit("T"), TopicSendPolicy)
    # A send that is checked while the refusal begins must not let later ones pass.
    kit.admission.forget("T")
    kit.topics.meddle = lambda: kit.admission.refuse("in-sync replicas not enough")
    kit.admit("T")
    assert kit.admission.known == {}
