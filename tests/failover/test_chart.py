"""Chart and table of stored rounds."""

import json

from tests.failover.chart import CHART, DATA, draw, table


def test_chart_is_the_one_of_the_stored_rounds() -> None:
    assert CHART.read_text() == draw(json.loads(DATA.read_text()))


def test_table_has_medians_and_longest_times_of_both() -> None:
    data = {"ours": {"a": [1.0, 3.0], "b": [9.0]}, "etcd": {"a": [2.0]}, "apache": {"a": [5.0]}}
    assert table(data).splitlines()[2:] == [
        "| `b` | 1 | 9.00 | 9.00 |  |  |  |",
        "| `a` | 3 | 2.00 | 3.00 | 1 | 5.00 | 5.00 |",
    ]
