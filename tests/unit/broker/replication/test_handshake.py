"""Handshake of the pair protocol: proofs, comparison of the logs, and what is refused."""

import zlib
from typing import Any

import msgspec
import pytest

from rocketpy.broker.replication.handshake import (
    Accepted,
    Diverged,
    MasterHandshake,
    PairIdentity,
    Refused,
    SlaveHandshake,
)
from rocketpy.broker.replication.store_log import StoreLog
from rocketpy.errors import BadFrameError, FrameTooLongError
from rocketpy.proto.replication.epochs import Epoch
from rocketpy.proto.replication.pair_frames import (
    PREAMBLE,
    Accept,
    Challenge,
    HandshakeReader,
    Proof,
    Refusal,
    Refuse,
    encode_handshake,
)
from tests.unit.broker.replication.kit import FILE_BYTES, SECRET, FakeStore

MASTER = PairIdentity(cluster="c", name="b", broker_id=0, secret=SECRET)
SLAVE = PairIdentity(cluster="c", name="b", broker_id=1, secret=SECRET)
TEXT = bytes(range(200)) * 5


def master(store: FakeStore, identity: PairIdentity = MASTER, **more: Any) -> MasterHandshake:
    more = {"is_taken": lambda _: False, **more}
    return MasterHandshake(identity, StoreLog(store, FILE_BYTES), nonce=b"m" * 32, **more)


def slave(store: FakeStore, identity: PairIdentity = SLAVE, **more: Any) -> SlaveHandshake:
    more = {"file_bytes": FILE_BYTES, **more}
    log = StoreLog(store, more.pop("file_bytes"))
    return SlaveHandshake(identity, log, nonce=b"s" * 32, **more)


def shake(one: MasterHandshake, other: SlaveHandshake) -> Accepted | Refused | None:
    """Run a handshake; return the master's result, which the slave must share."""
    to_master = other.start()
    assert to_master.startswith(PREAMBLE)
    to_master = to_master[len(PREAMBLE) :]
    while to_master:
        to_slave = one.feed(to_master)
        to_master = other.feed(to_slave)
    if isinstance(one.result, Accepted):
        assert isinstance(other.result, Accepted)
        assert one.result.start == other.result.start
    return one.result


def refusal(result: object) -> Refusal:
    assert isinstance(result, Refused)
    return result.refusal.code


@pytest.mark.parametrize("end", [0, 1, 500, len(TEXT)])
def test_slave_whose_log_is_a_prefix_is_accepted_at_its_end(end: int) -> None:
    result = shake(master(FakeStore(TEXT, identity="x")), slave(FakeStore(TEXT[:end])))

    assert isinstance(result, Accepted)
    assert result.start == end


def test_empty_slave_of_any_identity_starts_at_the_oldest_byte() -> None:
    store = FakeStore(TEXT, start=FILE_BYTES, identity="x")

    result = shake(master(store), slave(FakeStore(identity="another")))

    assert isinstance(result, Accepted)
    assert result.start == FILE_BYTES


@pytest.mark.parametrize(
    ("store", "code", "offset"),
    [
        (FakeStore(TEXT + b"!", start=FILE_BYTES), Refusal.BEYOND_END, FILE_BYTES + len(TEXT)),
        (FakeStore(TEXT), Refusal.BEHIND_RANGE, FILE_BYTES),
        (FakeStore(b"!" * 100, start=FILE_BYTES), Refusal.DIFFERENT_LOG, FILE_BYTES),
        (FakeStore(TEXT, start=FILE_BYTES, identity="y"), Refusal.OTHER_LOG, -1),
    ],
    ids=["beyond", "behind", "different", "identity"],
)
def test_log_that_does_not_continue_is_refused(
    store: FakeStore, code: Refusal, offset: int
) -> None:
    result = shake(master(FakeStore(TEXT, start=FILE_BYTES, identity="x")), slave(store))

    assert refusal(result) is code
    assert isinstance(result, Refused)
    assert result.refusal.offset == offset
    assert result.is_proven


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster": "d"}, Refusal.OTHER_BROKER),
        ({"name": "d"}, Refusal.OTHER_BROKER),
        ({"broker_id": 0}, Refusal.SAME_ID),
    ],
    ids=str,
)
def test_slave_of_another_group_is_refused(changes: dict[str, Any], code: Refusal) -> None:
    identity = PairIdentity(
        **{"cluster": "c", "name": "b", "broker_id": 1, "secret": SECRET, **changes}
    )

    assert refusal(shake(master(FakeStore()), slave(FakeStore(), identity))) is code


def test_broker_id_of_a_live_slave_is_refused() -> None:
    result = shake(
        master(FakeStore(), is_taken=lambda broker_id: broker_id == 1), slave(FakeStore())
    )

    assert refusal(result) is Refusal.SAME_ID


def test_other_file_size_is_refused() -> None:
    result = shake(master(FakeStore()), slave(FakeStore(), file_bytes=2 * FILE_BYTES))

    assert refusal(result) is Refusal.OTHER_FILE_SIZE


# -- proofs --------------------------------------------------------------------------------------


def test_slave_closes_when_the_master_does_not_know_the_secret() -> None:
    one, other = master(FakeStore(identity="x")), slave(FakeStore())
    stranger = PairIdentity(cluster="c", name="b", broker_id=0, secret=b"y" * 32)
    one = master(FakeStore(TEXT, identity="x"), stranger)
    challenge = one.feed(other.start()[8:])

    assert other.feed(challenge) == b""
    assert refusal(other.result) is Refusal.NOT_PROVEN


@pytest.mark.parametrize("proof", [b"", b"?" * 32])
def test_master_refuses_a_slave_that_does_not_know_the_secret(proof: bytes) -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore())
    one.feed(other.start()[8:])
    answer = one.feed(encode_handshake(Proof(proof=proof, samples=[])))

    assert refusal(one.result) is Refusal.NOT_PROVEN
    assert isinstance(one.result, Refused)
    assert not one.result.is_proven
    assert b"range" not in answer


def test_proof_of_the_master_is_none_of_the_slave() -> None:
    one, other = master(FakeStore(identity="x")), slave(FakeStore())
    reader = HandshakeReader()
    reader.feed(one.feed(other.start()[8:]))
    received = reader.next()
    assert received is not None
    assert isinstance(received.message, Challenge)
    one.feed(encode_handshake(Proof(proof=received.message.proof, samples=[])))

    assert refusal(one.result) is Refusal.NOT_PROVEN


def test_recorded_handshake_proves_nothing_to_another_nonce() -> None:
    one, other = master(FakeStore(identity="x")), slave(FakeStore())
    start = other.start()[8:]
    proof = other.feed(one.feed(start))
    again = MasterHandshake(
        MASTER,
        StoreLog(FakeStore(identity="x"), FILE_BYTES),
        nonce=b"n" * 32,
        is_taken=lambda _: False,
    )
    again.feed(start)
    again.feed(proof)

    assert refusal(again.result) is Refusal.NOT_PROVEN


def test_certificates_prove_both_sides_without_a_secret() -> None:
    identities = [
        PairIdentity(cluster="c", name="b", broker_id=number, secret=b"") for number in (0, 1)
    ]
    one = master(FakeStore(identity="x"), identities[0], is_certified=True)

    result = shake(one, slave(FakeStore(), identities[1], is_certified=True))

    assert isinstance(result, Accepted)


@pytest.mark.parametrize(("of_master", "of_slave"), [(True, False), (False, True)])
def test_missing_certificate_and_secret_is_refused(of_master: bool, of_slave: bool) -> None:
    identities = [
        PairIdentity(cluster="c", name="b", broker_id=number, secret=b"") for number in (0, 1)
    ]
    one = master(FakeStore(identity="x"), identities[0], is_certified=of_master)
    other = slave(FakeStore(), identities[1], is_certified=of_slave)
    shake(one, other)

    assert refusal(other.result) is Refusal.NOT_PROVEN


# -- malformed peers -----------------------------------------------------------------------------


def test_messages_out_of_order_are_refused_by_both() -> None:
    accept, proof = (
        encode_handshake(Accept(start=0)),
        encode_handshake(Proof(proof=b"", samples=[])),
    )
    with pytest.raises(BadFrameError, match="out of order"):
        master(FakeStore()).feed(proof)
    with pytest.raises(BadFrameError, match="out of order"):
        slave(FakeStore()).feed(accept)
    refuse = Refuse(code=Refusal.BEYOND_END, offset=-1, text="")
    with pytest.raises(BadFrameError, match="out of order"):
        slave(FakeStore()).feed(encode_handshake(refuse))


@pytest.mark.parametrize(
    ("samples", "offset"),
    [
        ([], 0),
        ([(0, 900, 0)], 0),
        ([(400, 0, 0)], 400),
        ([(0, 1_001, 0)], 0),
        ([(2_000, 5, 0)], 2_000),
    ],
    ids=["none", "short", "empty", "beyond", "outside"],
)
def test_slave_whose_samples_do_not_reach_its_end_is_refused(
    samples: list[tuple[int, int, int]], offset: int
) -> None:
    """A proven slave of a later version must not skip the comparison by sending less."""
    copy = FakeStore(TEXT)
    sent = [(at, size, zlib.crc32(TEXT[at : at + size])) for at, size, _ in samples]
    copy.log_samples = lambda *_, **__: sent  # type: ignore[method-assign]  # a later version
    one, other = master(FakeStore(TEXT, identity="x")), slave(copy)
    one.feed(other.feed(one.feed(other.start()[8:])))

    assert refusal(one.result) is Refusal.DIFFERENT_LOG
    assert isinstance(one.result, Refused)
    assert one.result.refusal.offset == offset


def test_sample_that_retention_deleted_meanwhile_proves_nothing() -> None:
    store = FakeStore(bytes(FILE_BYTES) + TEXT, identity="x")
    one, other = master(store), slave(FakeStore(bytes(FILE_BYTES) + TEXT[:20]))
    proof = other.feed(one.feed(other.start()[8:]))
    del store.data[:FILE_BYTES]
    store.min_phy_offset = FILE_BYTES
    one.feed(proof)

    assert refusal(one.result) is Refusal.DIFFERENT_LOG


def test_slave_that_ends_at_the_oldest_byte_of_the_master_is_behind() -> None:
    result = shake(
        master(FakeStore(TEXT, start=FILE_BYTES, identity="x")), slave(FakeStore(bytes(FILE_BYTES)))
    )

    assert refusal(result) is Refusal.BEHIND_RANGE


def test_samples_changed_on_the_way_are_not_proven() -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore(b"!" * 50))
    reader = HandshakeReader()
    reader.feed(other.feed(one.feed(other.start()[8:])))
    received = reader.next()
    assert received is not None
    assert isinstance(received.message, Proof)
    one.feed(encode_handshake(msgspec.structs.replace(received.message, samples=[])))

    assert refusal(one.result) is Refusal.NOT_PROVEN


def test_wrong_start_is_refused_by_the_slave() -> None:
    identities = [
        PairIdentity(cluster="c", name="b", broker_id=number, secret=b"") for number in (0, 1)
    ]
    one = master(FakeStore(TEXT, identity="x"), identities[0], is_certified=True)
    other = slave(FakeStore(TEXT[:50]), identities[1], is_certified=True)
    other.feed(one.feed(other.start()[8:]))

    with pytest.raises(BadFrameError, match="ends at 50"):
        other.feed(encode_handshake(Accept(start=51)))


@pytest.mark.parametrize(
    "message",
    [
        Accept(start=50),
        Accept(start=50, proof=b"?" * 16),
        Refuse(code=Refusal.BEYOND_END, offset=-1, text=""),
    ],
    ids=["accept", "accept with a guess", "refuse"],
)
def test_result_that_a_relay_invents_is_refused_by_the_slave(message: Accept | Refuse) -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore(TEXT[:50]))
    other.feed(one.feed(other.start()[8:]))

    with pytest.raises(BadFrameError, match="wrong tag"):
        other.feed(encode_handshake(message))
    assert other.result is None


def test_both_sides_derive_the_same_keys_of_one_direction_each() -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore())
    shake(one, other)
    assert one.master_tags is not None
    assert one.slave_tags is not None
    assert other.master_tags is not None
    assert other.slave_tags is not None

    tag = one.master_tags.next(b"frame")
    assert other.master_tags.next(b"frame") == tag
    assert one.slave_tags.next(b"frame") == other.slave_tags.next(b"frame") != tag


def test_frames_behind_the_handshake_are_kept() -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore())
    accepted = one.feed(other.feed(one.feed(other.start()[8:])))
    other.feed(accepted + b"frames")

    assert other.rest() == b"frames"


def test_accept_that_arrives_with_much_of_the_log_is_taken() -> None:
    one, other = master(FakeStore(TEXT, identity="x")), slave(FakeStore())
    accept = one.feed(other.feed(one.feed(other.start()[8:])))
    frames = bytes(512 << 10)
    other.feed(accept + frames)

    assert isinstance(other.result, Accepted)
    assert other.rest() == frames


def test_peer_that_has_not_proven_itself_may_not_send_much() -> None:
    other = slave(FakeStore())
    other.start()

    with pytest.raises(FrameTooLongError):
        other.feed(bytes(512 << 10))


@pytest.mark.parametrize(
    ("master_bytes", "slave_bytes", "length"),
    [(0, 0, 64), (6 << 20, 0, 500), (0, 6 << 20, 500), (1 << 40, 0, 500)],
)
def test_last_sample_holds_the_largest_record_of_either_side(
    master_bytes: int, slave_bytes: int, length: int
) -> None:
    logs = [
        log_of(FakeStore(TEXT[:size], identity="x"), most)
        for size, most in ((1_000, master_bytes), (500, slave_bytes))
    ]
    one = MasterHandshake(MASTER, logs[0], nonce=b"m" * 32, is_taken=lambda _: False)
    other = SlaveHandshake(SLAVE, logs[1], nonce=b"s" * 32)
    reader = HandshakeReader()
    reader.feed(other.feed(one.feed(other.start()[8:])))
    received = reader.next()
    assert received is not None
    assert isinstance(received.message, Proof)
    assert received.message.samples[-1][:2] == (500 - length, length)


def log_of(store: FakeStore, max_message_bytes: int) -> StoreLog:
    return StoreLog(store, FILE_BYTES, lambda: max_message_bytes)


def test_last_sample_is_larger_only_where_records_may_be() -> None:
    assert log_of(FakeStore(), 4 << 20).tail_bytes == 0
    assert log_of(FakeStore(), 6 << 20).tail_bytes == (6 << 20) + (64 << 10)
    assert log_of(FakeStore(), 1 << 40).tail_bytes == 64 << 20


def with_epochs(store: FakeStore, *epochs: tuple[int, int]) -> StoreLog:
    log = StoreLog(store, FILE_BYTES)
    log.current_epochs = lambda: tuple(Epoch(*each) for each in epochs)
    return log


def shake_logs(master_log: StoreLog, slave_log: StoreLog) -> tuple[object, object]:
    one = MasterHandshake(MASTER, master_log, nonce=b"m" * 32, is_taken=lambda _: False)
    other = SlaveHandshake(SLAVE, slave_log, nonce=b"s" * 32)
    return shake(one, other), other.result


def test_slave_whose_log_is_longer_than_the_common_epochs_is_to_be_cut_there() -> None:
    master_log = with_epochs(FakeStore(TEXT), (1, 0), (3, 100))
    other = TEXT[:100] + b"!" * 60
    found, at_slave = shake_logs(master_log, with_epochs(FakeStore(other), (1, 0), (2, 100)))
    assert found is None
    assert at_slave == Diverged(100)


def test_slave_that_continues_the_epochs_of_the_master_is_accepted() -> None:
    master_log = with_epochs(FakeStore(TEXT), (1, 0), (3, 100))
    for slave_epochs in [((1, 0),), ((1, 0), (2, 100))]:
        found, _ = shake_logs(master_log, with_epochs(FakeStore(TEXT[:100]), *slave_epochs))
        assert isinstance(found, Accepted)
        assert found.start == 100


def test_slave_without_epochs_is_compared_by_samples() -> None:
    master_log = with_epochs(FakeStore(TEXT), (1, 0))
    found, _ = shake_logs(master_log, StoreLog(FakeStore(TEXT[:300]), FILE_BYTES))
    assert isinstance(found, Accepted)
    found, _ = shake_logs(master_log, StoreLog(FakeStore(b"!" * 300), FILE_BYTES))
    assert refusal(found) is Refusal.DIFFERENT_LOG


def test_slave_without_a_common_epoch_is_refused() -> None:
    master_log = with_epochs(FakeStore(TEXT), (4, 50))
    _, at_slave = shake_logs(master_log, with_epochs(FakeStore(TEXT[:100]), (1, 0)))
    assert refusal(at_slave) is Refusal.DIFFERENT_LOG


def test_first_master_that_was_replaced_at_once_is_to_be_cut_at_its_start() -> None:
    master_log = with_epochs(FakeStore(TEXT), (2, 0))
    _, at_slave = shake_logs(master_log, with_epochs(FakeStore(b"!" * 100), (1, 0)))
    assert at_slave == Diverged(0)


def test_slave_with_a_newer_epoch_than_its_master_is_not_cut() -> None:
    """The state of the controller was restored from an old backup."""
    master_log = with_epochs(FakeStore(TEXT[:150]), (1, 0), (2, 100))
    slave_log = with_epochs(FakeStore(TEXT), (1, 0), (3, 100))
    _, at_slave = shake_logs(master_log, slave_log)
    assert isinstance(at_slave, Refused)
    assert at_slave.refusal.code is Refusal.DIFFERENT_LOG
    assert "older than the logs" in at_slave.refusal.text


def test_slave_with_another_log_is_refused_before_its_epochs_are_compared() -> None:
    """The controller's state was lost, and epochs began again with other replicas."""
    master_store, slave_store = FakeStore(TEXT), FakeStore(b"!" * 300)
    master_store.log_identity, slave_store.log_identity = "one", "other"
    found, at_slave = shake_logs(
        with_epochs(master_store, (1, 0), (9, 100)), with_epochs(slave_store, (1, 0), (2, 200))
    )
    assert refusal(found) is Refusal.OTHER_LOG
    assert isinstance(at_slave, Refused)


@pytest.mark.parametrize("has_epochs", [True, False])
def test_master_whose_log_has_epochs_and_no_identity_compares_the_samples(
    has_epochs: bool,
) -> None:
    """Its log was copied from a master of Apache's, which names no identity."""
    master_store, slave_store = FakeStore(TEXT), FakeStore(TEXT[:300], identity="one")
    pairs = [(1, 0)] if has_epochs else []
    found, _ = shake_logs(with_epochs(master_store, *pairs), with_epochs(slave_store, (1, 0)))
    if has_epochs:
        assert isinstance(found, Accepted)
    else:
        assert refusal(found) is Refusal.OTHER_LOG


def test_epoch_list_in_a_wrong_order_is_a_bad_frame() -> None:
    master_log = with_epochs(FakeStore(TEXT), (4, 0), (3, 9))
    with pytest.raises(BadFrameError, match="epoch list"):
        shake_logs(master_log, with_epochs(FakeStore(TEXT[:100]), (1, 0)))
