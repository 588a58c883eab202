"""Frames of Apache's replication protocols, recorded from Apache 5.4.0."""

import hashlib
import json
from pathlib import Path

import pytest

from rocketpy.proto.replication import auto_switch_frames as auto
from rocketpy.proto.replication.classic_frames import (
    ReportReader,
    TransferReader,
    encode_report,
    encode_transfer_head,
)
from rocketpy.proto.replication.epochs import Epoch

FOLDER = Path(__file__).parents[2] / "vectors" / "ha"
VECTORS = {each["file"]: each for each in json.loads((FOLDER / "INDEX.json").read_bytes())["files"]}
CLASSIC = {name: each for name, each in VECTORS.items() if each["protocol"] == "classic"}
AUTO_SWITCH = {name: each for name, each in VECTORS.items() if each["protocol"] == "autoswitch"}
TRANSFERS = [name for name in CLASSIC if "master" in name]


def frame(name: str) -> bytes:
    lines = (FOLDER / name).read_text().splitlines()
    data = bytes.fromhex("".join(line for line in lines if not line.startswith("#")))
    assert len(data) == VECTORS[name]["length"]
    assert hashlib.sha256(data).hexdigest() == VECTORS[name]["sha256"]
    return data


def test_classic_vectors_are_complete() -> None:
    assert len(CLASSIC) == 4
    assert len(TRANSFERS) == 3


@pytest.mark.parametrize("name", TRANSFERS)
def test_transfer_vector_is_decoded_and_encoded_again(name: str) -> None:
    data, decoded = frame(name), CLASSIC[name]["decoded"]

    (part,) = TransferReader().feed(data)

    assert (part.phy_offset, len(part.data)) == (decoded["offset"], decoded["size"])
    assert encode_transfer_head(part.phy_offset, len(part.data)) + part.data == data


def test_report_vector_is_decoded_and_encoded_again() -> None:
    data = frame("classic-slave-first-report.hex")

    assert ReportReader().feed(data) == (0,)
    assert encode_report(0) == data


def test_file_end_vector_ends_at_the_file_end() -> None:
    decoded = CLASSIC["classic-master-file-end.hex"]["decoded"]
    (part,) = TransferReader().feed(frame("classic-master-file-end.hex"))

    assert part.phy_offset + len(part.data) == decoded["file_size"]


def test_auto_switch_vectors_are_complete() -> None:
    assert len(AUTO_SWITCH) == 5


def test_slave_hello_vector_is_decoded_and_encoded_again() -> None:
    data = frame("auto-slave-handshake.hex")

    assert auto.is_slave_hello(data[:8])
    assert auto.decode_slave_hello(data) == auto.SlaveHello(broker_id=2)
    assert auto.encode_slave_hello(auto.SlaveHello(2)) == data


def test_master_hello_vector_is_decoded_and_encoded_again() -> None:
    name = "auto-master-handshake.hex"
    data, decoded = frame(name), AUTO_SWITCH[name]["decoded"]
    reader = auto.MasterHelloReader()

    hello = reader.feed(data)

    assert hello is not None
    assert hello.end == decoded["maxOffset"]
    assert [list(each) for each in hello.epochs] == decoded["entries"]
    assert hello.epochs[-1].number == decoded["epoch"]
    assert reader.rest() == b""
    assert auto.encode_master_hello(hello) == data


def test_auto_switch_report_vector_is_decoded_and_encoded_again() -> None:
    data = frame("auto-slave-report.hex")

    assert auto.ReportReader().feed(data) == [634]
    assert auto.encode_report(634) == data


@pytest.mark.parametrize("name", ["auto-master-heartbeat.hex", "auto-master-transfer.hex"])
def test_auto_switch_part_vector_is_decoded_and_encoded_again(name: str) -> None:
    data, decoded = frame(name), AUTO_SWITCH[name]["decoded"]

    (part,) = auto.PartFrameReader().feed(data)

    assert (part.phy_offset, len(part.data)) == (decoded["offset"], decoded["size"])
    assert part.epoch == Epoch(decoded["epoch"], decoded["epochStart"])
    assert part.confirmed == decoded["confirmOffset"]
    head = auto.encode_part_head(part.phy_offset, len(part.data), part.epoch, part.confirmed)
    assert head + part.data == data
