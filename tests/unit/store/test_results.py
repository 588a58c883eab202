"""Arguments and results of a store: Apache's names, no shared defaults."""

from rocketpy.store.results import (
    BatchColumns,
    BatchEntry,
    GetMessageResult,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
    QueryIndexResult,
)


def test_statuses_have_apaches_names() -> None:
    for kind in (PutMessageStatus, GetMessageStatus):
        assert [one.name for one in kind] == [one.value for one in kind]
    assert {one.name for one in GetMessageStatus} == {
        "FOUND",
        "NO_MATCHED_MESSAGE",
        "MESSAGE_WAS_REMOVING",
        "OFFSET_FOUND_NULL",
        "OFFSET_OVERFLOW_BADLY",
        "OFFSET_OVERFLOW_ONE",
        "OFFSET_TOO_SMALL",
        "OFFSET_RESET",
        "NO_MATCHED_LOGIC_QUEUE",
        "NO_MESSAGE_IN_QUEUE",
    }


def test_put_ends_behind_its_last_byte() -> None:
    result = PutMessageResult(PutMessageStatus.PUT_OK, 1_000, 250, 7, 5)
    assert result.phy_end == 1_250
    assert result.phy_offsets == ()
    refused = PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
    assert (refused.phy_offset, refused.phy_end) == (0, 0)


def test_message_needs_a_topic_a_queue_and_a_body_only() -> None:
    message = PutMessage("T", 3, b"body")
    assert message.born_host == b"\x7f\0\0\1\0\0\0\0", "127.0.0.1:0"
    assert message.store_host == b"", "the store's own"
    assert message.wait_store_ok, "whoever sends waits for the disk unless it says otherwise"
    assert message.born_timestamp_ms == 0
    assert (message.flag, message.sys_flag, message.tags_code, message.delay_level) == (0, 0, 0, 0)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
    assert (message.properties, message.uniq_key, message.keys, message.tags) == (
        b"", None, None, None,
    )  # fmt: skip


def test_batch_says_once_what_its_messages_share() -> None:
    batch = PutBatch("T", 3, BatchColumns.of([BatchEntry(b"0"), BatchEntry(b"1", tags_code=5)]))
    single = PutMessage("T", 3, b"0")
    assert (batch.born_host, batch.store_host) == (single.born_host, single.store_host)
    assert batch.wait_store_ok
    assert (batch.sys_flag, batch.born_timestamp_ms, batch.reconsume_times) == (0, 0, 0)
    assert tuple(batch.messages.tags_codes) == (0, 5)
    assert len(batch.messages) == 2
    assert BatchEntry(b"0") == BatchEntry(b"0", b"", 0, 0, None, None, None)


def test_columns_hold_each_message_in_its_order() -> None:
    first = BatchEntry(b"0", b"p", 1, 5, "A", "k", "t")
    second = BatchEntry(b"1", flag=2)
    columns = BatchColumns.of([first, second])
    assert (tuple(columns.bodies), tuple(columns.properties)) == ((b"0", b"1"), (b"p", b""))
    assert (tuple(columns.flags), tuple(columns.tags_codes)) == ((1, 2), (5, 0))
    assert tuple(columns.uniq_keys) == ("A", None)
    assert (tuple(columns.keys), tuple(columns.tags)) == (("k", None), ("t", None))
    assert len(BatchColumns.of([])) == 0


def test_results_do_not_share_their_lists() -> None:
    one, other = (GetMessageResult(GetMessageStatus.FOUND, 1) for _ in range(2))
    one.buffers.append(memoryview(b"record"))
    assert other.buffers == []
    assert (other.count, other.size_bytes, other.min_offset, other.max_offset) == (0, 0, 0, 0)


def test_look_up_is_complete_unless_it_says_otherwise() -> None:
    found = QueryIndexResult([30, 10])
    assert found.is_complete
    assert (found.last_update_timestamp_ms, found.last_update_phy_offset) == (0, 0)
