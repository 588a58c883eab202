"""Text keeps to docs/STYLE.md: the words that it replaces become fewer, file by file."""

import pytest

from tests.tidy.words import allowed, counts


@pytest.mark.parametrize("kind", ["prominent", "all"])
def test_private_words_of_each_file_never_rise(kind: str) -> None:
    before = allowed().get(kind, {})

    risen = {
        name: (before.get(name, 0), count)
        for name, count in counts(kind).items()
        if count > before.get(name, 0)
    }

    assert not risen, f"(allowed, found) by file; see docs/STYLE.md: {risen}"
