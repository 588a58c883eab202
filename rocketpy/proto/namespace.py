"""Names of topics and groups within a namespace: `ns%orders`, `%RETRY%ns%billing`.

Source: NamespaceUtil (5.4.0).
"""

from typing import Final

from rocketpy.proto.topic_names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)

_SEPARATOR: Final = "%"


def wrap_namespace(namespace: str, name: str) -> str:
    """Return the broker's name of a topic or group; system names are unchanged."""
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, rest = _split(name)
    if rest.startswith(namespace + _SEPARATOR):
        return name
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def unwrap_namespace(namespace: str, name: str) -> str:
    """Return the user's name of a topic or group, without its namespace."""
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, rest = _split(name)
    own = namespace + _SEPARATOR
    return prefix + rest.removeprefix(own) if rest.startswith(own) else name


def _is_of_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
