"""JSON Schemas of the types of bodies."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from rocketpy.client.messages.body_types import codec_of, has_pydantic_part

Mode = Literal["validation", "serialization"]
"""Whether bodies of a type are read or written: pydantic's classes may have two forms."""

_PREFIX: Final = "pydantic."
_Schema = dict[str, Any]


def json_schemas(
    wanted: Sequence[tuple[Any, Mode]], place: str
) -> tuple[list[_Schema], dict[str, _Schema]]:
    """Return the schema of each type, and the named schemas that they refer to.

    A type that has no form in JSON gets the schema of any value.

    Args:
        wanted: types, each with its direction.
        place: where the named schemas will be, `#/components/schemas/`.
    """
    found: list[_Schema] = [{} for _ in wanted]
    plain: list[int] = []  # positions in `wanted`
    pydantic: list[int] = []
    for at, (kind, _) in enumerate(wanted):
        try:
            codec_of(kind)
        except TypeError:  # only a serializer of the user knows it
            continue
        (pydantic if has_pydantic_part(kind) else plain).append(at)
    schemas, components = msgspec.json.schema_components(
        [wanted[at][0] for at in plain], schema_hook=_any_value, ref_template=f"{place}{{name}}"
    )
    for at, schema in zip(plain, schemas, strict=True):
        found[at] = schema
    if pydantic:
        given = [(at, *wanted[at]) for at in pydantic]
        schemas_by_place, more = _pydantic_schemas(given, place)
        if more.keys() & components.keys():  # classes of one name in both libraries
            schemas_by_place, more = _pydantic_schemas(given, f"{place}{_PREFIX}")
            more = {f"{_PREFIX}{name}": schema for name, schema in more.items()}
        components |= more
        for at, schema in schemas_by_place.items():
            found[at] = schema
    return found, components


def _any_value(_: type) -> _Schema:
    return {}


def _pydantic_schemas(
    given: Sequence[tuple[int, Any, Mode]], place: str
) -> tuple[dict[int, _Schema], dict[str, _Schema]]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - an extra

    inputs: list[tuple[int, Mode, TypeAdapter[Any]]] = [
        (at, mode, TypeAdapter(kind)) for at, kind, mode in given
    ]
    schemas, shared = TypeAdapter.json_schemas(inputs, ref_template=f"{place}{{model}}")
    return {at: schema for (at, _), schema in schemas.items()}, shared.get("$defs", {})
