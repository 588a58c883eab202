import zlib

import pytest
import zstandard

from rocketpy.errors import BadBodyError
from rocketpy.proto.record.compression import deflate, inflate
from rocketpy.proto.record.sys_flag import CompressionType

BODY = b"hello " * 1000


@pytest.mark.parametrize("codec", CompressionType)
def test_round_trip_within_the_bound(codec):
    packed = deflate(BODY, codec)
    assert len(packed) < len(BODY)
    assert inflate(memoryview(packed), codec, len(BODY)) == BODY
    with pytest.raises(BadBodyError, match="more than"):
        inflate(packed, codec, len(BODY) - 1)


@pytest.mark.parametrize("codec", CompressionType)
def test_cut_and_damaged_bodies(codec):
    packed = deflate(BODY, codec)
    for damaged in (packed[:-6], packed[:5], b"", b"nonsense" * 4):
        with pytest.raises(BadBodyError):
            inflate(damaged, codec)


def test_bomb_costs_no_memory():
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))
    for packed in (bomb, unsized):
        with pytest.raises(BadBodyError, match="more than 1000 bytes"):
            inflate(packed, CompressionType.ZSTD, 1000)


def test_zstd_without_a_declared_size():
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
    assert inflate(packed, CompressionType.ZSTD) == BODY


def test_unknown_codecs():
    with pytest.raises(BadBodyError, match="unknown compression type 7"):
        inflate(b"x", 7)


def test_levels():
    assert deflate(BODY, level=9) == zlib.compress(BODY, 9)
    assert inflate(deflate(b""), CompressionType.ZLIB) == b""
