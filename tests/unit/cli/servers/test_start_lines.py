"""Lines of a server's start."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from rocketpy.cli.servers import daemon


@pytest.mark.parametrize(
    ("limit", "level", "hint"), [(64, "warning", "LimitNOFILE"), (65_536, "info", "")]
)
def test_report_of_few_descriptors_is_a_warning_with_their_limit(
    limit: int, level: str, hint: str
) -> None:
    with capture_logs() as events:
        daemon._report_descriptors(limit)
    [line] = events
    found: Any = line
    assert (found["log_level"], found["limit"]) == (level, limit)
    assert hint in found.get("hint", "")
