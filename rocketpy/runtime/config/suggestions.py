"""Suggestions for misspelt keys and names."""

import re
from collections.abc import Iterable
from typing import Final

_WORDS: Final = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SHORT_WORD: Final = 3
_LONG_WORD: Final = 6
_LONG_KEY: Final = 8
_MAX_SLIPS: Final = 2
_MAX_OTHER_WORDS: Final = 2
_TELLING_WORD: Final = 7
_SHORT_FORMS: Final = (
    ("name server", "namesrv"),
    ("name srv", "namesrv"),
    ("nameserver", "namesrv"),
    ("addresses", "addr"),
    ("address", "addr"),
    ("directory", "dir"),
)


def plain_key(key: str) -> str:
    """Return a key in lower case without underscores and dots."""
    return key.replace("_", "").replace(".", "").lower()


def suggestion(key: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown key: the known key that it misspells, if any.

    Args:
        key: the unknown key.
        known: keys that have an effect.
    """
    near = misspelt(key, known)
    return f"; did you mean {near}?" if near else ""


def misspelt(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that a key misspells; None if there is none."""
    return next((each for each in known if _is_misspelt(key, each)), None)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one, None if none is."""
    import difflib  # noqa: PLC0415 - for misspelt names only

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests a known name; empty without one."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near}?"


def similar(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that a key misspells, abbreviates or extends; None if there is none.

    `storePathRoot` and `storePathRootDirectory` are similar to `storePathRootDir`, `namesrvAddress`
    is to `namesrvAddr`. This is too wide for proposals, but not for keys that must not be ignored.

    Args:
        key: the unknown key.
        known: keys that must not be ignored.
    """
    ordered = sorted(known)
    found = misspelt(key, ordered)
    if found is not None:
        return found
    words = _short_words(key)
    distances = [(_other_words(words, _short_words(each)), len(each), each) for each in ordered]
    # Of several, the shortest: `storePath` is `storePathRootDir`.
    near = min((each for each in distances if each[0] is not None), default=None)
    return None if near is None else near[2]


def _short_words(key: str) -> list[str]:
    """Return the words of a key in lower case, each in its shortest form."""
    text = " ".join(_WORDS.findall(key)).lower()
    for long, short in _SHORT_FORMS:
        text = text.replace(long, short)
    return text.split()


def _other_words(typed: list[str], meant: list[str]) -> int | None:
    """Return how many words one key has and the other has not; None if they are not similar."""
    shorter, longer = sorted((typed, meant), key=len)
    count = len(longer) - len(shorter)
    if not shorter or count > _MAX_OTHER_WORDS:
        return None
    if longer[: len(shorter)] == shorter:
        is_telling = len(shorter) > 1 or len(shorter[0]) >= _TELLING_WORD
        return count if is_telling else None
    # Inside of a longer key, two words may mean something else: `haTlsEnable`, `tls.enable`.
    least = 2 if shorter is typed else 3
    starts = range(1, count + 1)
    is_part = any(longer[at : at + len(shorter)] == shorter for at in starts)
    return count if is_part and len(shorter) >= least else None


def _is_misspelt(key: str, meant: str) -> bool:
    """Return whether a key is another one with slips of the pen, and no other word.

    A ratio of equal letters would propose `transactionCheckMax` for `transactionCheckMin`, which
    means the opposite; so words are compared one by one.
    """
    if plain_key(key) == plain_key(meant):
        return True
    words, others = _WORDS.findall(key), _WORDS.findall(meant)
    if len(words) != len(others):  # a slip in the case of a letter: compare as one word
        return len(key) >= _LONG_KEY and _is_slip(plain_key(key), plain_key(meant))
    pairs = [(a.lower(), b.lower()) for a, b in zip(words, others, strict=True)]
    wrong = [(a, b) for a, b in pairs if a != b]
    return len(wrong) <= _MAX_SLIPS and all(_is_slip(a, b) for a, b in wrong)


def _is_slip(typed: str, meant: str) -> bool:
    """Return whether two words differ by one letter too many, too few, swapped, or replaced.

    Words of one or two letters may have one too many, but not another one (in, on), and a replaced
    letter counts in words of six or more only (pull, poll).
    """
    is_short = len(typed) < _SHORT_WORD or len(meant) < _SHORT_WORD - 1
    if is_short or abs(len(typed) - len(meant)) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(typed, meant, strict=False)) if a != b), None)
    if at is None:
        return True
    if len(typed) != len(meant):
        shorter, longer = sorted((typed, meant), key=len)
        return shorter[at:] == longer[at + 1 :]
    if typed[at + 1 :] == meant[at + 1 :]:
        return len(meant) >= _LONG_WORD
    return typed[at : at + 2] == meant[at : at + 2][::-1] and typed[at + 2 :] == meant[at + 2 :]
