"""What users stand on changes only on purpose."""

from tests.tidy.public_api import SNAPSHOT, public_api


def test_public_names_and_signatures_are_those_written_down() -> None:
    """Meant to change? `make public-api` writes the snapshot; its difference is for the review."""
    assert public_api() == SNAPSHOT.read_text()
