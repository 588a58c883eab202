"""Loads Apache's properties files into frozen dataclasses.

A dataclass is the configuration of one concern; its fields are the keys, renamed mechanically
(`send_thread_pool_queue_capacity` <-> `sendThreadPoolQueueCapacity`). `option` adds further
properties. A field with such a dataclass as type is a group: its keys are on the same level as the
others. A key in two dataclasses sets both.

Sources of values, in order of precedence: command line (`-D key=value`), environment
(`ROCKETPY_<KEY>`, upper or lower case, underscores ignored), live file (changes at run time:
`rocketpy.runtime.config.live_config`), file, default.

An invalid value is a `ConfigError` with file, line and key, and so is a value of a key of Apache's
that must not be ignored (`refused_keys`). Unknown keys, and other keys of Apache without an effect,
are warnings.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, get_type_hints

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.properties_file import format_properties, parse_properties
from rocketpy.runtime.config.refused_keys import REFUSABLE_KEYS, refusal_of
from rocketpy.runtime.config.suggestions import plain_key, suggestion
from rocketpy.runtime.config.values import OptionType, allowed, parse_value, value_text

T = TypeVar("T")

_MAX_REMOTE_VALUE_CHARS = 4_096
_HIDDEN = "******"
_ENV_PREFIX = "ROCKETPY_"
_SECRET = re.compile("password|secret|credential|init_authentication_user")
"""Field names with values that are never shown, even if not declared as secret."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


def option(  # noqa: PLR0913 - one keyword for each property of a key
    default: Any,  # noqa: ANN401 - as dataclasses.field
    *,
    key: str = "",
    live: bool = False,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    separator: str = ";",
    secret: bool = False,
    only_with: str = "",
    stored: bool = True,
) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Declare a configuration field; the keywords become its metadata.

    Args:
        default: the value without a setting (lists as tuples).
        key: the wire key, if it differs from the mechanical one (`brokerIP1`).
        live: whether UPDATE_*_CONFIG may change it at run time.
        unit: of numbers, for help texts.
        minimum: smallest allowed number.
        maximum: largest allowed number.
        choices: allowed values of a string.
        separator: between the items of a list.
        secret: never shown by `ConfigSet.as_properties`.
        only_with: field of the same dataclass without which this one has no effect (0, false, "").
        stored: whether a change at run time is kept for the next start.
    """
    metadata: dict[str, Any] = {
        "key": key,
        "live": live,
        "unit": unit,
        "min": minimum,
        "max": maximum,
        "choices": tuple(choices),
        "separator": separator,
        "only_with": only_with,
        "stored": stored,
    }
    if secret:
        metadata["secret"] = True
    return field(default=default, metadata=metadata)


def camel_case(name: str) -> str:
    """Return the key of a field name: `flush_disk_type` -> `flushDiskType`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


@dataclass(frozen=True, slots=True)
class Option:
    """Key of a configuration dataclass.

    Attributes:
        key: as written in files.
        path: attribute names from the dataclass to the value.
        type: parser of the text.
        default: the value without a setting, or `dataclasses.MISSING`.
        live: may change at run time.
        unit: of numbers; may be empty.
        secret: must not be shown.
        only_with: path to the value without which this one has no effect; may be empty.
        stored: whether a change at run time is kept for the next start.
    """

    key: str
    path: tuple[str, ...]
    type: OptionType
    default: Any
    live: bool = False
    unit: str = ""
    secret: bool = False
    only_with: tuple[str, ...] = ()
    stored: bool = True


def _default(each: "dataclasses.Field[Any]") -> Any:  # noqa: ANN401 - any field's value
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory()
    return each.default


@cache
def options_of(config_class: type) -> tuple[Option, ...]:
    """List every key of a configuration dataclass, groups included."""
    hints = get_type_hints(config_class)
    found: list[Option] = []
    for each in dataclasses.fields(config_class):
        if not each.init:
            continue
        hint = hints[each.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            group = _default(each)
            assert group is not dataclasses.MISSING, f"the group {each.name} needs a default"
            found.extend(
                dataclasses.replace(
                    inner,
                    path=(each.name, *inner.path),
                    default=_at(group, inner.path),
                    only_with=(each.name, *inner.only_with) if inner.only_with else (),
                )
                for inner in options_of(hint)
            )
            continue
        metadata = each.metadata
        found.append(
            Option(
                key=metadata.get("key") or camel_case(each.name),
                path=(each.name,),
                type=OptionType.from_hint(hint, metadata),
                default=_default(each),
                live=bool(metadata.get("live", False)),
                unit=metadata.get("unit", ""),
                secret=bool(metadata.get("secret", _SECRET.search(each.name))),
                only_with=(metadata["only_with"],) if metadata.get("only_with") else (),
                stored=bool(metadata.get("stored", True)),
            )
        )
    return tuple(found)


_Options: TypeAlias = Mapping[str, Sequence[tuple[type, Option]]]
"""Options by key, each with its dataclass."""


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


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of values: files, the environment, the command line.

    Attributes:
        defaults: key and text of replaced defaults; lowest precedence.
        live_text: properties text of the live file; it takes precedence over `text`. Only keys
            that may change at run time have an effect there.
        live_name: its file name.
        text: the properties text; may be empty.
        name: file name, for errors.
        environ: environment variables; only `ROCKETPY_*` are used.
        overrides: `key=value` texts of the command line.
        accepted: keys with values that may be ignored although they are refused otherwise.
    """

    text: str = ""
    name: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    live_text: str = ""
    live_name: str = ""
    accepted: Collection[str] = ()

    @classmethod
    def from_file(
        cls,
        path: str | Path | None,
        *,
        environ: Mapping[str, str] | None = None,
        overrides: Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
        accepted: Collection[str] = (),
    ) -> "Sources":
        """Read a file; without one only environment and command line are used.

        Raises:
            ConfigError: the file cannot be read or is not UTF-8.
        """
        text = ""
        if path is not None:
            try:
                text = Path(path).read_text(encoding="utf-8")
            except OSError as error:
                reason = f"cannot read the configuration file: {error.strerror}"
                raise ConfigError(reason, source=str(path)) from error
            except UnicodeDecodeError as error:
                raise ConfigError("the file is not UTF-8 text", source=str(path)) from error
        return cls(
            text=text,
            name="" if path is None else str(path),
            environ=environ or {},
            overrides=overrides,
            defaults=defaults or {},
            accepted=accepted,
        )

    def settings(self, keys: Iterable[str]) -> list[Setting]:
        """List every setting, lowest precedence first.

        Args:
            keys: the known keys, to recognise environment variables.

        Raises:
            ConfigError: a text is not `key=value`.
        """
        found = [Setting(key, text, "default") for key, text in self.defaults.items()]
        found += [
            Setting(each.key, each.value, self.name, each.line)
            for each in parse_properties(self.text, source=self.name)
        ]
        found += [
            Setting(each.key, each.value, self.live_name, each.line, from_live_file=True)
            for each in parse_properties(self.live_text, source=self.live_name)
        ]
        by_env_name = {plain_key(key): key for key in keys}
        ours = (name for name in sorted(self.environ) if name.upper().startswith(_ENV_PREFIX))
        for name in ours:
            if key := by_env_name.get(plain_key(name[len(_ENV_PREFIX) :])):
                found.append(Setting(key, self.environ[name], f"environment {name}"))
        for text in self.overrides:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise ConfigError(f"expected key=value, not {text!r}", source="-D")
            found.append(Setting(key.strip(), value.strip(), "-D"))
        return found


class ConfigSet:
    """Loaded configuration: one frozen value of each dataclass, and warnings.

    Immutable; `updated` returns a new set.

    Attributes:
        warnings: settings without an effect.
        from_live_file: keys with a value from the live file.
    """

    def __init__(
        self,
        values: Iterable[_Dataclass],
        warnings: Iterable[ConfigWarning] = (),
        from_live_file: Iterable[str] = (),
    ) -> None:
        self._values: dict[type, Any] = {type(value): value for value in values}
        self.warnings: tuple[ConfigWarning, ...] = tuple(warnings)
        self.from_live_file: frozenset[str] = frozenset(from_live_file)

    @classmethod
    def of(cls, *values: _Dataclass) -> "ConfigSet":
        """Wrap configuration values that a program has built."""
        return cls(values)

    def get(self, config_class: type[T]) -> T:
        """Return the value of one of the loaded dataclasses."""
        value: T = self._values[config_class]
        return value

    def live_keys(self) -> frozenset[str]:
        """Return the keys that `updated` may change."""
        return frozenset(each.key for each, _ in self._effective() if each.live)

    def stored_keys(self) -> frozenset[str]:
        """Return the live keys whose changes are kept for the next start."""
        return frozenset(each.key for each, _ in self._effective() if each.live and each.stored)

    def non_defaults(self) -> dict[str, str]:
        """Return key and text of every value that differs from its default, secrets hidden."""
        return {
            each.key: self._shown(each, value)
            for each, value in self._effective()
            if value != each.default
        }

    def as_dict(self) -> dict[str, str]:
        """Return key and text of every effective value, secrets hidden."""
        return {each.key: self._shown(each, value) for each, value in self._effective()}

    def as_properties(self) -> str:
        """Return the effective values as properties text, sorted by key, secrets hidden."""
        return format_properties(self.as_dict())

    def updated(self, changes: Mapping[str, str], *, live_only: bool = True) -> "ConfigSet":
        """Return a set with changed values; an invalid change changes none.

        Args:
            changes: key and text of each change.
            live_only: reject keys that are not marked `live`.

        Raises:
            ConfigError: an unknown key, a key that must not change, or an invalid value.
        """
        values = dict(self._values)
        for key, text in changes.items():
            found = [
                (owner, each) for owner in values for each in options_of(owner) if each.key == key
            ]
            if not found:
                raise ConfigError("no such key" + suggestion(key, self.as_dict()), key=key)
            if live_only and not any(each.live for _, each in found):
                raise ConfigError("cannot be changed while running", key=key)
            if len(text) > _MAX_REMOTE_VALUE_CHARS or not (text.isprintable() or not text):
                raise ConfigError("the value is too long or not printable", key=key)
            for owner, each in found:
                value = _parse(each, Setting(key, text, ""))
                values[owner] = _rebuilt(values[owner], {each.path: value}, "")
        return ConfigSet(values.values(), self.warnings, self.from_live_file)

    def _effective(self) -> list[tuple[Option, Any]]:
        return [
            (each, _at(value, each.path))
            for owner, value in self._values.items()
            for each in options_of(owner)
        ]

    def _shown(self, each: Option, value: Any) -> str:  # noqa: ANN401 - any field's value
        text = value_text(value, each.type)
        return _HIDDEN if each.secret and text else text


def load(sources: Sources, classes: Sequence[type], *, elsewhere: Iterable[str] = ()) -> ConfigSet:
    """Build the configuration dataclasses from all sources.

    Args:
        sources: of the values.
        classes: the dataclasses to fill; every field needs a default.
        elsewhere: more known keys, which other parts read.

    Raises:
        ConfigError: an invalid value, or an unknown key on the command line.
    """
    options: dict[str, list[tuple[type, Option]]] = {}
    for config_class in classes:
        for each in options_of(config_class):
            options.setdefault(each.key, []).append((config_class, each))
    # Refused keys are read from the environment as well: ignoring one there is as dangerous.
    settings = sources.settings([*options, *REFUSABLE_KEYS])
    loading = _Loading(sources, options, frozenset(elsewhere))
    for setting in settings:
        loading.read(setting)
    built = loading.build(classes, settings)
    warnings = [*loading.warnings, *_repeated(settings), *_of_rules(built, settings)]
    for setting in settings:
        for config_class, each in options.get(setting.key, ()):
            value = built[classes.index(config_class)]
            if each.only_with and setting.source != "default" and not _at(value, each.only_with):
                of_class = options_of(config_class)
                key = next(one.key for one in of_class if one.path == each.only_with)
                reason = f"has no effect while {key} is {_at(value, each.only_with)}"
                warnings.append(ConfigWarning(setting.key, reason, setting.source, setting.line))
    return ConfigSet(built, warnings, loading.from_live_file)


class _Loading:
    """Values, warnings and errors of one `load`; all errors are collected before one is raised."""

    def __init__(self, sources: Sources, options: _Options, others: Collection[str]) -> None:
        self._sources = sources
        self._options = options
        self._others = others
        self._values: dict[type, dict[tuple[str, ...], Any]] = {}
        self._live: dict[str, bool] = {}
        self._errors: list[ConfigError] = list(_unknown_accepted(sources.accepted))
        self.warnings: list[ConfigWarning] = []

    @property
    def from_live_file(self) -> list[str]:
        """Keys whose value comes from the live file."""
        return [key for key, is_live in self._live.items() if is_live]

    def read(self, setting: Setting) -> None:
        """Take a setting; a later one of the same key replaces it."""
        options = self._options
        try:
            accepted = _refuse(setting, self._sources.accepted, options)
            if accepted is not None:
                self.warnings.append(accepted)
            if setting.from_live_file and not _may_change(setting.key, options):
                self._warn(setting, "has no effect here: it cannot be changed while running")
            elif setting.key in options:
                self._live[setting.key] = setting.from_live_file
                for config_class, each in options[setting.key]:
                    of_class = self._values.setdefault(config_class, {})
                    of_class[each.path] = _parse(each, setting)
            elif setting.key not in self._others and setting.key not in REFUSABLE_KEYS:
                self.warnings.append(_warn(setting, options))
        except ConfigError as error:
            self._errors.append(error)

    def _warn(self, setting: Setting, reason: str) -> None:
        self.warnings.append(ConfigWarning(setting.key, reason, setting.source, setting.line))

    def build(self, classes: Sequence[type], settings: Sequence[Setting]) -> list[Any]:
        """Return a value of each class.

        Raises:
            ConfigError: the first of all errors.
        """
        built: list[Any] = []
        for config_class in classes:
            values = self._values.get(config_class, {})
            try:
                built.append(_rebuilt(config_class, values, self._sources.name))
            except ConfigError as error:
                self._errors.append(_located(error, settings))
        if self._errors:
            raise _all_of(self._errors, self.warnings)
        return built


def _of_rules(built: Iterable[Any], settings: Sequence[Setting]) -> Iterator[ConfigWarning]:
    """Yield values that do less than they seem to because of another key."""
    unset = Setting("", "", "")
    for value in built:
        for key, reason in getattr(value, "config_warnings", tuple)():
            place = next((each for each in reversed(settings) if each.key == key), unset)
            yield ConfigWarning(key, reason, place.source, place.line)


def _repeated(settings: Iterable[Setting]) -> Iterator[ConfigWarning]:
    """Yield lines of a file whose key is given again in a later line, which counts."""
    earlier: dict[tuple[str, str], int | None] = {}
    for each in settings:
        if line := earlier.get((each.source, each.key)):
            again = f"has no effect: line {each.line} gives this key again"
            yield ConfigWarning(each.key, again, each.source, line)
        earlier[each.source, each.key] = each.line


def _unknown_accepted(accepted: Iterable[str]) -> Iterator[ConfigError]:
    for key in accepted:
        if key not in REFUSABLE_KEYS:
            reason = "is not a key that is refused" + suggestion(key, REFUSABLE_KEYS)
            yield ConfigError(reason, source="--accept-ignored", key=key)


def _refuse(
    setting: Setting,
    accepted: Collection[str],
    options: Mapping[str, Sequence[tuple[type, Option]]],
) -> ConfigWarning | None:
    """Return the warning about an accepted value; None if the value needs no acceptance.

    Raises:
        ConfigError: the value must not be ignored, and the operator has not accepted it.
    """
    if setting.key not in REFUSABLE_KEYS:
        return None
    live_keys = [key for key in options if _may_change(key, options)]
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


def _all_of(errors: Sequence[ConfigError], warnings: Sequence[ConfigWarning]) -> ConfigError:
    """Return the first error, with the number of the others in its text."""
    first = errors[0]
    if len(errors) > 1:
        reason = f"{first.reason} ({len(errors) - 1} more; --check-config prints all)"
        first = ConfigError(reason, source=first.source, line=first.line, key=first.key)
    first.all_errors = tuple(map(str, errors))
    first.warnings = tuple(map(str, warnings))
    return first


def _may_change(key: str, options: _Options) -> bool:
    return any(each.live for _, each in options.get(key, ()))


def _located(error: ConfigError, settings: Sequence[Setting]) -> ConfigError:
    """Add source and line to an error that a dataclass raised about a key."""
    key = camel_case(error.key)
    for setting in reversed(settings):
        if key and setting.key == key and not error.source:
            return ConfigError(error.reason, source=setting.source, line=setting.line, key=key)
    return error


def _warn(setting: Setting, known: Iterable[str]) -> ConfigWarning:
    if not setting.key:
        return ConfigWarning("=", "a line without a key, ignored", setting.source, setting.line)
    # Imported for wrong keys only.
    from rocketpy.runtime.config.apache_keys import APACHE_KEYS, unsupported_reason  # noqa: PLC0415

    # Keys without an effect are not proposed: following the advice would change nothing.
    proposed = suggestion(setting.key, known)
    if setting.key in APACHE_KEYS:
        reason = f"has no effect: {unsupported_reason(setting.key)}"
    elif setting.source == "-D":
        raise ConfigError("no such key" + proposed, source="-D", key=setting.key)
    else:
        reason = "unknown key, ignored" + proposed
    return ConfigWarning(setting.key, reason, setting.source, setting.line)


def _parse(each: Option, setting: Setting) -> Any:  # noqa: ANN401 - any field's value
    try:
        return parse_value(setting.text, each.type)
    except ValueError:
        unit = f" {each.unit}" if each.unit else ""
        shown = _HIDDEN if each.secret else repr(setting.text)
        reason = f"{shown} is not allowed here; expected {allowed(each.type)}{unit}"
        raise ConfigError(
            reason, source=setting.source, line=setting.line, key=setting.key
        ) from None


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - any field's value
    for name in path:
        value = getattr(value, name)
    return value


def _rebuilt(base: Any, changes: Mapping[tuple[str, ...], Any], source: str) -> Any:  # noqa: ANN401
    """Return `base` (a dataclass or a value of one) with the values at some paths replaced."""
    arguments: dict[str, Any] = {}
    groups: dict[str, dict[tuple[str, ...], Any]] = {}
    for path, value in changes.items():
        if len(path) == 1:
            arguments[path[0]] = value
        else:
            groups.setdefault(path[0], {})[path[1:]] = value
    is_class = isinstance(base, type)
    defaults = {each.name: each for each in dataclasses.fields(base)}
    try:
        for name, inner in groups.items():
            group = _default(defaults[name]) if is_class else getattr(base, name)
            arguments[name] = _rebuilt(group, inner, source)
        return base(**arguments) if is_class else dataclasses.replace(base, **arguments)
    except ValueError as error:  # a check of the dataclass, possibly of several keys
        key, _, reason = str(error).partition(": ")
        owner: type = base if is_class else type(base)
        if reason and any(each.key == key for each in options_of(owner)):
            raise ConfigError(reason, key=key) from error
        raise ConfigError(str(error), source=source) from error
