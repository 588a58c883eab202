"""Checks of names and messages, with the error texts of Apache.

Source: TopicValidator, Validators and HookUtils of 5.4.0.
"""

import re
from typing import Final

from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX

MAX_TOPIC_CHARS: Final = 127
MAX_RETRY_TOPIC_CHARS: Final = 255
"""Limit of `%RETRY%` and `%DLQ%` topics; also the limit of any topic in UTF-8 bytes."""
MAX_GROUP_CHARS: Final = 120
MAX_PROPERTIES_BYTES: Final = 32_767

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def is_valid_name(name: str) -> bool:
    """Return whether a topic or group name has only allowed characters, and at least one."""
    return _NAME.match(name) is not None


def check_topic(topic: str) -> str | None:
    """Check a topic name as a broker and a producer do.

    Returns:
        The reason why the name is invalid, or None.
    """
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not is_valid_name(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > MAX_RETRY_TOPIC_CHARS:
            return "The specified topic is longer than topic max length 255."
    elif len(topic) > MAX_TOPIC_CHARS:
        return "The specified topic is longer than topic max length 127."
    return None


def check_group(group: str) -> str | None:
    """Check a producer or consumer group name.

    Returns:
        The reason why the name is invalid, or None.
    """
    if not group or group.isspace():
        return "the specified group is blank"
    if len(group) > MAX_GROUP_CHARS:
        return "the specified group is longer than group max length 120."
    if not is_valid_name(group):
        return (
            f"the specified group[{group}] contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None
