"""Records of the commit log, or of a pull response's body, as Arrow record batches.

Vectorised with numpy and pyarrow (the extra `spark`): no Python for each row. Bytes in,
batches out: files are the store's, sockets the client's. What decodes is loaded when it is first
used: Spark asks for schemas and plans in processes of their own, which decode nothing.
"""

from typing import TYPE_CHECKING, Any

from rocketpy.arrow.schema import COLUMNS, INCLUDES, Column, RowSchema, row_schema

if TYPE_CHECKING:
    from rocketpy.arrow.decoder import RecordDecoder
    from rocketpy.arrow.positions import record_positions

__all__ = [
    "COLUMNS",
    "INCLUDES",
    "Column",
    "RecordDecoder",
    "RowSchema",
    "record_positions",
    "row_schema",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Load what decodes."""
    # ruff: noqa: PLC0415 - not before it is used
    if name == "RecordDecoder":
        from rocketpy.arrow.decoder import RecordDecoder

        return RecordDecoder
    if name == "record_positions":
        from rocketpy.arrow.positions import record_positions

        return record_positions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
