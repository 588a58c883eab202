"""Small stores on simulated files, for the tests of this folder."""

from rocketpy.proto.record.message import decode_message
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import GetMessageStatus, PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

TOPIC = "Topic"
OK = PutMessageStatus.PUT_OK


class Kit:
    """Store directory that several stores open in turn."""

    def __init__(self, **config: object) -> None:
        self.clock = SimClock()
        self.files = SimFiles(self.clock)
        self.config = MessageStoreConfig(
            **{
                "store_path_root_dir": "/store",
                "mapped_file_size_commit_log": 16384,
                "mapped_file_size_consume_queue": 2000,
                "max_hash_slot_num": 20,
                "max_index_num": 50,
                **config,
            }  # type: ignore[arg-type]
        )
        self.arrivals: list[tuple[str, int, int, int]] = []

    def open(self) -> MessageStore:
        store = MessageStore(
            self.config, clock=self.clock, files=self.files, new_log_id=lambda: "0" * 32
        )
        store.on_arrival = lambda *each: self.arrivals.append(each)
        store.open()
        return store

    def step(self, store: MessageStore, name: str) -> None:
        for service in store.services:
            if service.name == name:
                service.step(self.clock.monotonic_ms())
                return
        raise AssertionError(name)


def message(body: bytes, queue_id: int = 0, **more: object) -> PutMessage:
    return PutMessage(
        TOPIC,
        queue_id,
        body,
        properties=b"UNIQ_KEY\x01k\x02",
        uniq_key="k",
        **more,  # type: ignore[arg-type]
    )


def bodies(store: MessageStore, queue_id: int = 0, start: int | None = None) -> list[bytes]:
    """Every body a consumer gets from a queue."""
    found: list[bytes] = []
    offset = max(0, store.min_offset(TOPIC, queue_id)) if start is None else start
    while True:
        result = store.get_message(TOPIC, queue_id, offset, 32, 1 << 20)
        found += [decode_message(each, check_crc=True).body for each in result.buffers]
        if result.status not in {GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE}:
            return found
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


def put_many(store: MessageStore, count: int, start: int = 0, size: int = 100) -> list[bytes]:
    sent = []
    for number in range(start, start + count):
        body = f"{number:08d}".encode().ljust(size, b".")
        assert store.put_message(message(body)).status is OK
        sent.append(body)
    return sent
