"""What a line of `logging` says as fields: its text ends in `key=%s` for each of them.

The library layers log plain text, which reads well and needs no structlog. Lines for machines have
their fields beside the event all the same: they are taken from the text's template and from its
arguments, so that a value may hold blanks and equals signs, and a number stays one.
"""

import re
from collections.abc import Mapping
from typing import Final

_SPEC: Final = r"%(?:\(\w+\))?[-#0+ ]*\d*(?:\.\d+)?[a-zA-Z]"
_FIELDS: Final = re.compile(rf"(?P<event>.*?):?(?P<fields>(?: \w+={_SPEC})+)", re.DOTALL)
_FIELD: Final = re.compile(rf" (\w+)=({_SPEC})")
_AS_IT_IS: Final = re.compile(r"%(?:\(\w+\))?[sd]")


def fields_of(template: str, arguments: object) -> tuple[str, dict[str, object]] | None:
    """Return the event of a line and its fields, None when it has none or ends otherwise.

    Args:
        template: the first argument of the call that logged.
        arguments: the others, a mapping when the template names its places.
    """
    found = _FIELDS.fullmatch(template)
    if found is None:
        return None
    fields = _FIELD.findall(found["fields"])
    if isinstance(arguments, Mapping):
        values = [arguments[spec[2 : spec.index(")")]] for _, spec in fields]
        event = found["event"] % arguments
    elif isinstance(arguments, tuple):
        before = len(arguments) - len(fields)
        event = found["event"] % arguments[:before]
        values = list(arguments[before:])
    else:
        return None
    pairs = zip(fields, values, strict=True)
    return event, {key: _value(spec, value, arguments) for (key, spec), value in pairs}


def _value(spec: str, value: object, arguments: object) -> object:
    if _AS_IT_IS.fullmatch(spec) and isinstance(value, (str, int, float, type(None))):
        return value
    return spec % (arguments if isinstance(arguments, Mapping) else (value,))
