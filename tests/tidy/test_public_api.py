"""What users stand on changes only on purpose."""

from tests.tidy.public_api import SNAPSHOT, public_api
from tests.tidy.stubs import stubs


def test_public_names_and_signatures_are_those_written_down() -> None:
    """Meant to change? `make public-api` writes the snapshot; its difference is for the review."""
    assert public_api() == SNAPSHOT.read_text()


def test_stubs_are_those_that_the_script_writes() -> None:
    """After a change of a signature or a public name: `make stubs`."""
    for path, text in stubs().items():
        assert path.read_text() == text, f"{path}: run `make stubs`"
