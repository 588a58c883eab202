"""Records of the commit log, or of a pull response's body, as Arrow record batches.

numpy and pyarrow (the extra `spark`) are needed. The package reads no file and no socket: callers
pass bytes. The decoder is imported on first use, because Spark creates processes that only plan
and need the schemas alone.
"""

from typing import TYPE_CHECKING, Any

try:
    from rocketpy.arrow.schema import COLUMNS, INCLUDES, Column, RowSchema, row_schema
except ModuleNotFoundError as _error:
    if _error.name not in {"numpy", "pyarrow"}:
        raise
    raise ModuleNotFoundError(
        f"rocketpy.arrow needs {_error.name}: pip install 'rocketpy-mq[spark]'", name=_error.name
    ) from None

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
    """Import the decoder or the position finder on first use."""
    # ruff: noqa: PLC0415 - not before it is used
    if name == "RecordDecoder":
        from rocketpy.arrow.decoder import RecordDecoder

        return RecordDecoder
    if name == "record_positions":
        from rocketpy.arrow.positions import record_positions

        return record_positions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
