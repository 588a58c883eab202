"""Handles to recall delayed messages."""

import base64

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto.recall_handle import RecallHandle, decode_recall_handle


def test_handle_made_by_apache() -> None:
    text = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAwIEFBQUE="
    handle = RecallHandle("T", "broker-a", "1700000000000", "AAAA")
    assert handle.encode() == text
    assert decode_recall_handle(text) == handle
    assert decode_recall_handle(text.rstrip("=")) == handle


@pytest.mark.parametrize(
    "text",
    ["", "x", "****", "ü", "A" * 5_000, "djEgVCBicm9rZXI=", "/+8=",
     base64.urlsafe_b64encode(b"v2 T b 1 id").decode(),
     base64.urlsafe_b64encode(b"v1 T \xff 1 id").decode()],
)  # fmt: skip
def test_decode_recall_handle_invalid_raises(text: str) -> None:
    with pytest.raises(BadBodyError, match="recall handle is invalid"):
        decode_recall_handle(text)
