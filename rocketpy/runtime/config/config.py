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
from rocketpy.runtime.config.refused_keys import GUARDED_KEYS, REFUSABLE_KEYS
from rocketpy.runtime.config.setting_checks import (
    ConfigWarning,
    Setting,
    accepted_errors,
    of_unknown_key,
    path_fault,
    refused,
    repeated,
)
from rocketpy.runtime.config.suggestions import plain_key, similar, suggestion
from rocketpy.runtime.config.values import OptionType, allowed, parse_value, value_text

T = TypeVar("T")

_MAX_REMOTE_VALUE_CHARS = 4_096
_HIDDEN = "******"
_ENV_PREFIX = "ROCKETPY_"
_SECRET = re.compile("password|secret|credential|init_authentication_user")
"""Field names with values that are never shown, even if not declared as secret."""


_DIRECTORY = re.compile("store|dir", re.IGNORECASE)
"""Keys that name directories, of which Apache allows several for some."""


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
    path: bool = False,
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
        path: names a file or directory.
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
        "path": path,
    }
    if secret:
        metadata["secret"] = True
    return field(default=default, metadata=metadata)


def camel_case(name: str) -> str:
    """Return the key of a field name: `flush_disk_type` -> `flushDiskType`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _camel_case_of(name: str) -> str:
    """Return the key that an environment variable of ours may mean, if it has underscores."""
    return camel_case(name[len(_ENV_PREFIX) :].lower())


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
        is_path: names a file or directory.
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
    is_path: bool = False


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
                is_path=bool(metadata.get("path", hint is Path)),
            )
        )
    return tuple(found)


_Options: TypeAlias = Mapping[str, Sequence[tuple[type, Option]]]
"""Options by key, each with its dataclass."""


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
        variables: keys with a value in an environment variable of another name; it takes
            precedence over `defaults` only.
    """

    text: str = ""
    name: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    live_text: str = ""
    live_name: str = ""
    accepted: Collection[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_file(
        cls,
        path: str | Path | None,
        *,
        environ: Mapping[str, str] | None = None,
        overrides: Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
        accepted: Collection[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> "Sources":
        """Read a file; without one only environment and command line are used.

        Raises:
            ConfigError: the file cannot be read.
        """
        text = ""
        if path is not None:
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                reason = f"cannot read the configuration file: {error.strerror}"
                raise ConfigError(reason, source=str(path)) from error
            try:
                text = content.decode()
            except UnicodeDecodeError:
                text = content.decode("latin-1")  # as Java's Properties reads it
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return cls(
            text=text,
            name="" if path is None else str(path),
            environ=environ or {},
            overrides=overrides,
            defaults=defaults or {},
            accepted=accepted,
            variables=variables or {},
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
            Setting(key, text, f"environment {name}")
            for key, name in self.variables.items()
            if (text := self.environ.get(name))
        ]
        found += [
            Setting(each.key, each.value, self.name, each.line)
            for each in parse_properties(self.text, source=self.name)
        ]
        found += [
            Setting(each.key, each.value, self.live_name, each.line, from_live_file=True)
            for each in parse_properties(self.live_text, source=self.live_name)
        ]
        by_env_name = {plain_key(key): key for key in keys}
        guarded = GUARDED_KEYS.intersection(by_env_name.values())
        ours = (name for name in sorted(self.environ) if name.upper().startswith(_ENV_PREFIX))
        for name in ours:
            written = name[len(_ENV_PREFIX) :]
            key = by_env_name.get(plain_key(written))
            if key is None and similar(_camel_case_of(name), guarded):
                key = _camel_case_of(name)  # refused as an unknown key
            if key is not None:
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

    def has(self, config_class: type) -> bool:
        """Return whether a dataclass is one of the loaded ones."""
        return config_class in self._values

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
                reason = "cannot be changed while running: change the file and restart the server"
                raise ConfigError(reason, key=key)
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
    loading.check_accepted(settings)
    # A value that another source replaces asks for nothing.
    effective = {each.key: each for each in settings if not each.from_live_file}
    for setting in settings:
        is_effective = setting.from_live_file or effective[setting.key] is setting
        loading.read(setting, is_effective=is_effective)
    built = loading.build(classes)
    warnings = [*loading.warnings, *repeated(settings), *loading.rule_warnings(built)]
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
        self._used: dict[str, Setting] = {}  # by key, what its value comes from
        self._errors: list[ConfigError] = []
        self._live_keys = frozenset(key for key in options if _may_change(key, options))
        self.warnings: list[ConfigWarning] = []

    @property
    def from_live_file(self) -> list[str]:
        """Keys whose value comes from the live file."""
        return [key for key, setting in self._used.items() if setting.from_live_file]

    def check_accepted(self, settings: Iterable[Setting]) -> None:
        """Refuse `--accept-ignored` for keys that would not be refused."""
        given = {each.key for each in settings}
        given.update(_camel_case_of(name) for name in self._sources.environ)
        self._errors += accepted_errors(self._sources.accepted, given)

    def read(self, setting: Setting, *, is_effective: bool) -> None:
        """Take a setting; a later one of the same key replaces it, even if it is invalid.

        Args:
            setting: of any key.
            is_effective: whether it is the last one of its key outside the live file.
        """
        key, options, accepted = setting.key, self._options, self._sources.accepted
        try:
            warning = refused(setting, accepted, self._live_keys) if is_effective else None
            if warning is not None:
                self.warnings.append(warning)
            if setting.from_live_file and key not in self._live_keys:
                reason = "has no effect here: it cannot be changed while running"
                self.warnings.append(ConfigWarning(key, reason, setting.source, setting.line))
            elif key in options:
                self._take(setting)
            elif key not in self._others and key not in REFUSABLE_KEYS:
                self.warnings.append(of_unknown_key(setting, options, accepted))
        except ConfigError as error:
            self._errors.append(error)

    def _take(self, setting: Setting) -> None:
        places = [
            (self._values.setdefault(config_class, {}), each)
            for config_class, each in self._options[setting.key]
        ]
        # First: a rule must not be checked with the value of an earlier line.
        self._used.pop(setting.key, None)
        for of_class, each in places:
            of_class.pop(each.path, None)
        for of_class, each in places:
            of_class[each.path] = _parse(each, setting)
        self._used[setting.key] = setting

    def build(self, classes: Sequence[type]) -> list[Any]:
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
                self._errors.append(self._located(error))
        if self._errors:
            raise _all_of(self._errors, self.warnings)
        return built

    def _located(self, error: ConfigError) -> ConfigError:
        """Add source and line to an error that a dataclass raised about a key."""
        key = camel_case(error.key)
        setting = self._used.get(key)
        if setting is None or error.source:
            return error
        return ConfigError(error.reason, source=setting.source, line=setting.line, key=key)

    def rule_warnings(self, built: Iterable[Any]) -> Iterator[ConfigWarning]:
        """Yield values that do less than they seem to because of another key."""
        unset = Setting("", "", "")
        for value in built:
            for key, reason in getattr(value, "config_warnings", tuple)():
                place = self._used.get(key, unset)
                yield ConfigWarning(key, reason, place.source, place.line)


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


def _parse(each: Option, setting: Setting) -> Any:  # noqa: ANN401 - any field's value
    shown = _HIDDEN if each.secret else repr(setting.text)
    fault = path_fault(setting.text) if each.is_path else ""
    # Names of files may have a comma, as those of certificates do, and a list in REFUSABLE_KEYS may
    # be accepted as the name of one directory.
    is_directory = each.is_path and _DIRECTORY.search(each.key) and each.key not in REFUSABLE_KEYS
    if not fault and is_directory and "," in setting.text:
        fault = "contains , but several directories are not supported: write one"
    if fault:
        reason = f"{shown} {fault}"
        raise ConfigError(reason, source=setting.source, line=setting.line, key=setting.key)
    try:
        return parse_value(setting.text, each.type)
    except ValueError:
        unit = f" {each.unit}" if each.unit else ""
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
