"""Choice of columns: wrong names are sentences that name the nearest one."""

from typing import Any

import pytest

from rocketpy.arrow.schema import row_schema


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"columns": ["queueOffzet"]},
            "unknown column 'queueOffzet'; did you mean queueOffset? Known: topic, ",
        ),
        ({"columns": ["zz"]}, "unknown column 'zz'. Known: topic, "),
        (
            {"columns": ["ofset"], "style": "kafka"},
            "unknown column 'ofset'; did you mean offset? Known: key, value, topic, ",
        ),
        ({"include": ["host"]}, "unknown include 'host'; did you mean hosts? Known: "),
        ({"style": "kafke"}, "unknown schema style 'kafke'; did you mean kafka? Known: rocketmq, "),
        ({"value_format": "text"}, "unknown value format 'text'. Known: binary, string"),
        ({"columns": ["topic", "topic"]}, "columns must be named once each, and at least one: "),
        ({"columns": []}, "columns must be named once each, and at least one: "),
    ],
)
def test_row_schema_wrong_name_is_a_sentence(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        row_schema(**options)
    assert str(caught.value).startswith(words)


def test_row_schema_keeps_the_order_of_columns() -> None:
    chosen = row_schema(columns=["offset", "value"], style="kafka")
    assert chosen.names == ("queueOffset", "body")
    assert chosen.arrow.names == ["offset", "value"]
