"""Frames of the classic replication protocol, recorded from Apache 5.4.0."""

import json
from pathlib import Path

import pytest

from rocketpy.proto.replication.classic_frames import (
    ReportReader,
    TransferReader,
    encode_report,
    encode_transfer_head,
)

FOLDER = Path(__file__).parents[2] / "vectors" / "ha"
CLASSIC = {
    each["file"]: each
    for each in json.loads((FOLDER / "INDEX.json").read_bytes())["files"]
    if each["protocol"] == "classic"
}
TRANSFERS = [name for name in CLASSIC if "master" in name]


def frame(name: str) -> bytes:
    lines = (FOLDER / name).read_text().splitlines()
    data = bytes.fromhex("".join(line for line in lines if not line.startswith("#")))
    assert len(data) == CLASSIC[name]["length"]
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
