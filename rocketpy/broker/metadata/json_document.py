"""Interface of JSON files for the broker's tables, and the version stored in them."""

from typing import Any, Final, Protocol

from rocketpy.runtime.clock import Clock

_INT_LIMIT: Final = 1 << 63


class JsonDocument(Protocol):
    """A JSON file with a backup; implemented by `rocketpy.store.files.json_file.JsonFile`."""

    def load(self) -> Any:  # noqa: ANN401 - JSON enters here
        """Return the decoded content; None when neither the file nor its backup can be read."""
        ...

    def save(self, value: object) -> None:
        """Write the whole content; the previous content becomes the backup."""
        ...


class DataVersion:
    """Version of a table, which name servers and slaves compare.

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
        """Count one change at the current time."""
        self.counter += 1
        self.timestamp_ms = clock.time_ms()

    def next(self, clock: Clock) -> "DataVersion":
        """Return the next version, with the current time."""
        return DataVersion(clock.time_ms(), self.counter + 1, self.state_version)

    def load(self, value: object) -> None:
        """Load the fields that a file contains; the others keep their values."""
        table = as_table(value)
        self.counter = as_int(table.get("counter"), self.counter)
        self.state_version = as_int(table.get("stateVersion"), self.state_version)
        self.timestamp_ms = as_int(table.get("timestamp"), self.timestamp_ms)

    def to_json(self) -> dict[str, int]:
        """Return the JSON form used in files and on the wire."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }


def as_table(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_numbers(value: object) -> dict[int, int]:
    """Return a table of numbers, such as offsets by queue; -1 for what is no number."""
    return {as_int(key, 0): as_int(each, -1) for key, each in as_table(value).items()}


def as_int(value: object, default: int) -> int:
    """Return a JSON number (or digits in a string) that fits in 64 bits, or the default."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return default
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return value if -_INT_LIMIT <= value < _INT_LIMIT else default
