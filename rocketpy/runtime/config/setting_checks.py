"""Checks of single settings: keys that are refused, unknown, misspelt or given twice."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.refused_keys import (
    GUARDED_KEYS,
    REFUSABLE_KEYS,
    is_harmless,
    refusal_of,
)
from rocketpy.runtime.config.suggestions import similar, suggestion


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting `key=value` with its source."""

    key: str
    text: str
    source: str
    line: int | None = None
    from_live_file: bool = False


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Setting without an effect, with the reason."""

    key: str
    reason: str
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}: " if self.line else f"{self.source}: "
        return f"{place if self.source else ''}{self.key}: {self.reason}"


_QUOTES: Final = frozenset("\"'")
_MAX_PORT: Final = 65_535
_NEVER_IN_HOSTS: Final = frozenset(",/ \"'$(){}")
_COMMENT: Final = re.compile(r"\s#")


def refused(
    setting: Setting, accepted: Collection[str], live_keys: Collection[str]
) -> ConfigWarning | None:
    """Return the warning about an accepted value; None if the value needs no acceptance.

    Args:
        setting: of any key.
        accepted: keys of `--accept-ignored`.
        live_keys: keys that can be changed from the network.

    Raises:
        ConfigError: the value must not be ignored, and the operator has not accepted it.
    """
    if setting.key not in REFUSABLE_KEYS:
        return None
    refusal = refusal_of(setting.key, setting.text, live_keys)
    if refusal is None:
        return None
    if setting.key in accepted:
        reason = f"{setting.text} is ignored, as accepted by --accept-ignored: {refusal.reason}"
        return ConfigWarning(setting.key, reason, setting.source, setting.line)
    reason = (
        f"{setting.text!r} is not supported: {refusal.reason}. Either {refusal.advice}; "
        f"or accept that it is ignored, with --accept-ignored {setting.key}"
    )
    raise ConfigError(reason, source=setting.source, line=setting.line, key=setting.key)


def of_unknown_key(
    setting: Setting, known: Collection[str], accepted: Collection[str]
) -> ConfigWarning:
    """Return the warning about a key without an effect.

    Args:
        setting: of a key that is not in `known`, and is not refused.
        known: keys with an effect.
        accepted: keys of `--accept-ignored`.

    Raises:
        ConfigError: the key was given on the command line, or misspells one that must not be
            ignored.
    """
    key, source, line = setting.key, setting.source, setting.line
    if not key:
        return ConfigWarning("=", "a line without a key, ignored", source, line)
    # Imported for wrong keys only.
    from rocketpy.runtime.config.apache_keys import APACHE_KEYS, unsupported_reason  # noqa: PLC0415

    if key in APACHE_KEYS:
        return ConfigWarning(key, f"has no effect: {unsupported_reason(key)}", source, line)
    # Other keys without an effect are not proposed: following the advice would change nothing.
    meaningful = [*known, *REFUSABLE_KEYS]
    meant = similar(key, GUARDED_KEYS.intersection(meaningful))
    proposed = suggestion(key, meaningful) or (f"; did you mean {meant}?" if meant else "")
    if source == "-D":
        raise ConfigError("no such key" + proposed, source="-D", key=key)
    if meant is None or (meant not in known and is_harmless(meant, setting.text)):
        return ConfigWarning(key, "unknown key, ignored" + proposed, source, line)
    if key in accepted:
        reason = f"is ignored, as accepted by --accept-ignored; did you mean {meant}?"
        return ConfigWarning(key, reason, source, line)
    reason = (
        f"unknown key; did you mean {meant}? That key decides what is stored, where, how many "
        "copies there are, which servers are asked, or which clients may connect. Either correct "
        f"or remove it; or accept that it is ignored, with --accept-ignored {key}"
    )
    raise ConfigError(reason, source=source, line=line, key=key)


def name_fault(name: str) -> str:
    """Return why a name with quotes at its ends or a variable is wrong; empty for others.

    A shell and YAML remove quotes; a properties file has none. A shell and compose files replace
    `${...}`; here, every broker of a cluster would have the name `${HOSTNAME}`.
    """
    if name[:1] in _QUOTES or name[-1:] in _QUOTES:
        return "has quotes, which would be a part of the name: leave them out"
    if name.startswith("$") or "${" in name or "$(" in name:
        return "has a variable, which is not replaced here: write the name itself"
    return ""


def address_fault(address: str) -> str:
    """Return why one address of a list, with `;` between, is not `host:port`; empty if it is."""
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _MAX_PORT
    if host and is_port and not set(host) & _NEVER_IN_HOSTS:
        return ""
    fault = name_fault(address)
    if fault:
        return f"{address!r} {fault}"
    return f"must be host:port, several with ; between: {address!r}"


def path_fault(text: str) -> str:
    """Return why a path would not name what it seems to, and what to write; empty for others.

    A shell or Apache's start scripts replace `~`, `$NAME` and `${...}` and remove quotes, and other
    formats of files have comments behind values; here, directories with these names would be
    created, and the messages of the intended one would be missing.

    Args:
        text: the path, as it was given.
    """
    path = text.strip()
    whole = "which is not replaced here: write the whole path, such as /home/mq/store"
    if path.startswith("~"):
        return f"begins with ~, {whole}"
    if "${" in path:
        return f"contains ${{, {whole}"
    if path.startswith("$"):
        return f"begins with $, {whole}"
    if fault := name_fault(path):
        return fault
    if _COMMENT.search(path):
        return "contains a comment, which would be a part of the name: move it to a separate line"
    if ";" in path:
        return "contains ; but several paths are not supported: write one path"
    return ""


def repeated(settings: Iterable[Setting]) -> Iterator[ConfigWarning]:
    """Yield lines of a file whose key is given again in a later line, which counts."""
    earlier: dict[tuple[str, str], int | None] = {}
    for each in settings:
        if line := earlier.get((each.source, each.key)):
            again = f"has no effect: line {each.line} gives this key again"
            yield ConfigWarning(each.key, again, each.source, line)
        earlier[each.source, each.key] = each.line


def accepted_errors(accepted: Iterable[str], given: Collection[str]) -> Iterator[ConfigError]:
    """Yield an error for each accepted key that would not be refused.

    Args:
        accepted: keys of `--accept-ignored`.
        given: keys of the configuration, of which some may be misspelt.
    """
    for key in accepted:
        if key not in REFUSABLE_KEYS and not (key in given and similar(key, GUARDED_KEYS)):
            reason = "is not a key that is refused" + suggestion(key, REFUSABLE_KEYS)
            yield ConfigError(reason, source="--accept-ignored", key=key)
