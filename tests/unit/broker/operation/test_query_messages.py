"""Queries by key: the index proposes records, and their keys decide."""

from rocketpy.broker.operation.query_messages import FoundMessages, KeyQuery, QueryMessages
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message, encode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.store.results import PutMessage, PutMessageStatus, QueryIndexResult
from tests.unit.broker.fakes import FakeStore
from tests.unit.store.store_kit import Kit as StoreKit

ANY_KEY = KeyQuery("T", "k", 10, 0, 9, None, is_unique=False)


def record(body: bytes, topic: str = "T", **properties: str) -> bytes:
    return encode_message(
        MessageExt(
            topic=topic,
            body=body,
            properties=properties,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
        )
    )


class DamagedStore(FakeStore):
    """Cannot read what lies at `damaged`."""

    damaged: frozenset[int] = frozenset()

    def look_message(self, phy_offset: int) -> memoryview | None:
        if phy_offset in self.damaged:
            raise CorruptRecordError(phy_offset, "bits have rotted")
        return super().look_message(phy_offset)


class Kit:
    def __init__(self, *records: bytes) -> None:
        self.store = DamagedStore()
        self.store.records = dict(enumerate(records))
        self.store.index = QueryIndexResult(list(self.store.records), 77, 88)
        self.find = QueryMessages(self.store, default_count=32, max_count=64)

    def bodies(self, query: KeyQuery = ANY_KEY) -> list[bytes]:
        found = self.find.by_key(query)
        if isinstance(found, Refusal):
            assert found.code == 22
            return []
        return [decode_message(one).body for one in found.records]


def test_query_each_kind_of_key() -> None:
    kit = Kit(
        record(b"key", KEYS="j k"),
        record(b"id", UNIQ_KEY="k"),
        record(b"tag", TAGS="k"),
        record(b"part of a key", KEYS="kk"),
        record(b"other topic", "U", KEYS="k", UNIQ_KEY="k", TAGS="k"),
    )
    assert kit.bodies() == [b"key", b"id"]
    assert kit.bodies(ANY_KEY._replace(index_type="K")) == [b"key"]
    assert kit.bodies(ANY_KEY._replace(index_type="U")) == [b"id"]
    assert kit.bodies(ANY_KEY._replace(index_type="T")) == [b"tag"]
    assert kit.bodies(ANY_KEY._replace(is_unique=True)) == [b"id"]
    assert kit.bodies(ANY_KEY._replace(key="none")) == []


def test_query_count_is_limited() -> None:
    kit = Kit(record(b"x", KEYS="k", UNIQ_KEY="k"))
    for max_count in (-5, 0, 1, 64, 65, 1 << 30):
        kit.bodies(ANY_KEY._replace(max_count=max_count))
    assert [query[2] for query in kit.store.queries] == [1, 1, 1, 64, 64, 64]
    kit.bodies(ANY_KEY._replace(max_count=1, is_unique=True))
    assert kit.store.queries[-1] == ("T", "k", 32, 0, 9, "U")


def test_query_returns_last_indexed_position() -> None:
    found = Kit(record(b"x", KEYS="k")).find.by_key(ANY_KEY)
    assert isinstance(found, FoundMessages)
    assert found[1:] == (77, 88)


def test_query_damaged_or_deleted_record_is_skipped() -> None:
    kit = Kit(record(b"good", KEYS="k"), record(b"bad", KEYS="k"), b"no record at all")
    kit.store.damaged = frozenset({1})
    kit.store.index = QueryIndexResult([2, 1, 99, 0], 77, 88)
    assert kit.bodies() == [b"good"]


def test_query_response_size_is_limited_to_at_least_one_record() -> None:
    many = [record(b"%d" % number + b"x" * 4_000_000, KEYS="k") for number in range(5)]
    assert [body[:1] for body in Kit(*many).bodies()] == [b"0", b"1", b"2"]
    assert len(Kit(record(b"x" * 16_000_000, KEYS="k")).bodies()) == 1


def test_query_by_physical_offset() -> None:
    kit = Kit(record(b"x"), record(b"y"))
    kit.store.damaged = frozenset({1})
    assert kit.find.by_phy_offset(0) == record(b"x")
    for missing in (-1, 1, 99):
        refused = kit.find.by_phy_offset(missing)
        assert isinstance(refused, Refusal)
        assert refused.code == 1
        assert str(missing) in refused.remark


def test_query_finds_a_key_behind_many_records_of_another_key_with_its_hash() -> None:
    files = StoreKit(mapped_file_size_commit_log=1 << 20, max_index_num=5_000)
    store = files.open()
    for body, key in [(b"wanted", "AaAa"), *((b"%d" % n, "BBBB") for n in range(200))]:
        properties = encode_properties({"KEYS": key})
        message = PutMessage("T", 0, body, properties=properties, keys=key)
        assert store.put_message(message).status is PutMessageStatus.PUT_OK
    find = QueryMessages(store, default_count=32, max_count=64)
    query = KeyQuery("T", "AaAa", 10, 0, 1 << 60, None, is_unique=False)
    found = find.by_key(query)
    assert isinstance(found, FoundMessages)
    assert [decode_message(one).body for one in found.records] == [b"wanted"]
    many = find.by_key(query._replace(key="BBBB"))
    assert isinstance(many, FoundMessages)
    assert len(many.records) == 10
