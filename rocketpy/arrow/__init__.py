"""Records of the commit log, or of a pull response's body, as Arrow record batches.

Vectorised with numpy and pyarrow (the extra `rocketpy[spark]`): no Python for each row. Bytes in,
batches out: files are the store's, sockets the client's.
"""

from rocketpy.arrow.decoder import RecordDecoder
from rocketpy.arrow.positions import record_positions
from rocketpy.arrow.schema import COLUMNS, INCLUDES, Column, RowSchema, row_schema

__all__ = [
    "COLUMNS",
    "INCLUDES",
    "Column",
    "RecordDecoder",
    "RowSchema",
    "record_positions",
    "row_schema",
]
