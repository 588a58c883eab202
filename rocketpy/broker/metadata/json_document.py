"""What the broker's tables need of a JSON file, and the version they carry in it."""

from typing import Any, Final, Protocol

from rocketpy.runtime.clock import Clock

_INT_LIMIT: Final = 1 << 63


class JsonDocument(Protocol):
    """One JSON file with its backup; `rocketpy.store.files.json_file.JsonFile` is the real one."""

    def load(self) -> Any:  # noqa: ANN401 - JSON enters here
        """The decoded content, or None when neither the file nor its backup can be read."""
        ...

    def save(self, value: object) -> None:
        """Write the whole content, keeping the previous one as backup."""
        ...


class DataVersion:
    """How often a table changed, and when; compared by name servers and slaves.

    Attributes:
        counter: number of changes.
        state_version: epoch of the broker set; 0 without a controller.
        timestamp_ms: wall time of the last change.
    """

    __slots__ = ("counter", "state_version", "timestamp_ms")

    def __init__(self, timestamp_ms: int, counter: int = 0, state_version: int = 0) -> None:
        self.timestamp_ms: int = timestamp_ms
        self.counter: int = counter
        self.state_version: int = state_version

    def bump(self, clock: Clock) -> None:
        """Count one change, now."""
        self.counter += 1
        self.timestamp_ms = clock.time_ms()

    def next(self, clock: Clock) -> "DataVersion":
        """Return the version after this one, of now."""
        return DataVersion(clock.time_ms(), self.counter + 1, self.state_version)

    def load(self, value: object) -> None:
        """Take over what a file says; what is missing stays."""
        table = as_table(value)
        self.counter = as_int(table.get("counter"), self.counter)
        self.state_version = as_int(table.get("stateVersion"), self.state_version)
        self.timestamp_ms = as_int(table.get("timestamp"), self.timestamp_ms)

    def to_json(self) -> dict[str, int]:
        """As it stands in files and on the wire."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }


def as_table(value: object) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_int(value: object, default: int) -> int:
    """A JSON number (or digits in quotes) that fits in 64 bits, or the default."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return default
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return value if -_INT_LIMIT <= value < _INT_LIMIT else default
