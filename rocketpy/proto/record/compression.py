"""Compression of message bodies, with a limit of the inflated size.

A few kilobytes can inflate to gigabytes (zstd: 32,000 to 1), so every function that inflates has a
limit.

Source: ZlibCompressor, Lz4Compressor, ZstdCompressor and CompressorFactory of 5.4.0.
"""

import zlib
from collections.abc import Generator
from typing import Final, cast

from rocketpy.errors import BadBodyError
from rocketpy.proto.record.sys_flag import CompressionType

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Default limit of `inflate`, far above any message within Apache's limits."""
_STEP_BYTES: Final = 1 << 20


def deflate(body: bytes, codec: CompressionType = CompressionType.ZLIB, level: int = 5) -> bytes:
    """Compress a body the way Java clients do.

    `level` is 0 to 9 for zlib, 1 and more for the others.
    """
    if codec is CompressionType.LZ4:
        import lz4.frame  # type: ignore[import-untyped]  # noqa: PLC0415 - no stubs; rarely needed

        return cast("bytes", lz4.frame.compress(body, compression_level=level))
    if codec is CompressionType.ZSTD:
        import zstandard  # noqa: PLC0415 - seldom needed

        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def inflate(
    body: bytes | memoryview, codec: int, max_output_bytes: int = MAX_INFLATED_BYTES
) -> bytes:
    """Decompress a body.

    Args:
        body: as stored.
        codec: the number in the system flag; see `CompressionType`.
        max_output_bytes: limit of the result.

    Raises:
        BadBodyError: the codec is unknown, the bytes are damaged or cut, or the result exceeds
            `max_output_bytes`.
    """
    try:
        if codec in {CompressionType.LEGACY_ZLIB, CompressionType.ZLIB}:
            return _inflate_zlib(body, max_output_bytes)
        if codec == CompressionType.LZ4:
            return _inflate_lz4(body, max_output_bytes)
        if codec == CompressionType.ZSTD:
            return _inflate_zstd(body, max_output_bytes)
    except (zlib.error, RuntimeError, EOFError, ValueError) as error:
        msg = f"compressed body is damaged: {error}"
        raise BadBodyError(msg) from error
    msg = f"unknown compression type {codec}"
    raise BadBodyError(msg)


def inflate_zlib_in_steps(
    body: bytes, max_output_bytes: int = MAX_INFLATED_BYTES
) -> Generator[None, None, bytes]:
    """Decompress a large zlib body as `inflate` does, with a pause after each MiB of output.

    Raises:
        BadBodyError: as `inflate`.
    """
    decompressor = zlib.decompressobj()
    output, rest = bytearray(), body
    while not decompressor.eof:
        try:
            piece = decompressor.decompress(rest, _STEP_BYTES)
        except zlib.error as error:
            msg = f"compressed body is damaged: {error}"
            raise BadBodyError(msg) from error
        rest = decompressor.unconsumed_tail
        output += piece
        if len(output) > max_output_bytes:
            raise _too_large(max_output_bytes)
        if not piece and not rest and not decompressor.eof:
            raise BadBodyError("compressed body is cut short")
        yield
    return bytes(output)


def _too_large(max_output_bytes: int) -> BadBodyError:
    return BadBodyError(f"compressed body inflates to more than {max_output_bytes} bytes")


def _inflate_zlib(body: bytes | memoryview, max_output_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    output = decompressor.decompress(body, max_output_bytes + 1)
    if len(output) > max_output_bytes:
        raise _too_large(max_output_bytes)
    if not decompressor.eof:
        raise BadBodyError("compressed body is cut short")
    return output


def _inflate_lz4(body: bytes | memoryview, max_output_bytes: int) -> bytes:
    import lz4.frame  # noqa: PLC0415 - seldom needed

    decompressor = lz4.frame.LZ4FrameDecompressor()
    output = cast("bytes", decompressor.decompress(body, max_length=max_output_bytes + 1))
    if len(output) > max_output_bytes:
        raise _too_large(max_output_bytes)
    if not decompressor.eof:
        raise BadBodyError("compressed body is cut short")
    return output


def _inflate_zstd(body: bytes | memoryview, max_output_bytes: int) -> bytes:
    import zstandard  # noqa: PLC0415 - seldom needed

    try:
        declared = zstandard.get_frame_parameters(body).content_size
        has_size = declared != zstandard.CONTENTSIZE_UNKNOWN
        if has_size and declared > max_output_bytes:
            raise _too_large(max_output_bytes)
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        with decompressor.stream_reader(body) as reader:
            output = reader.read(max_output_bytes + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(output) > max_output_bytes:
        raise _too_large(max_output_bytes)
    if has_size and len(output) != declared:
        raise BadBodyError("compressed body is cut short")
    return output
