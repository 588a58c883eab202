"""The limits one connection must keep to, as its selector or client hands them down."""

from rocketpy.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Times and sizes; the configuration says what each means. 0 is none where that is default."""

    max_frame_bytes: int
    high_water_bytes: int
    low_water_bytes: int
    hard_limit_bytes: int
    write_stall_timeout_ms: int
    idle_timeout_ms: int
    first_frame_timeout_ms: int = 0
    frame_timeout_ms: int = 0
    max_in_flight: int = 0
    max_in_flight_bytes: int = 0
