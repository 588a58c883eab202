"""`rocketpy cluster status`: rows, warnings and exit code."""

import pytest

from tests.unit.admin.fakes import FakeRemoting
from tests.unit.admin.test_failover import set_up
from tests.unit.cli.commands.test_silent_servers import run


def test_cluster_status_prints_warnings_and_ends_with_one(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(remoting, {1, 2})
    rows, err, code = run(capsys, "cluster", "status")
    assert [(row["id"], row["in_set"], row["epoch"]) for row in rows] == [
        (1, True, 7),
        (2, True, 7),
        (3, False, 7),
    ]
    assert (err, code) == ("warning: a: replica 3 is not alive\n", 1)
