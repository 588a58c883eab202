import pytest

from rocketpy.proto.record.tags import java_string_hash
from rocketpy.proto.subscription import (
    SubscriptionData,
    build_subscription,
    is_tag_type,
    split_tags,
)


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything(expression):
    data = build_subscription("T", expression, sub_version=5)
    assert (data.sub_string, data.tags_set, data.code_set, data.sub_version) == (
        "*",
        set(),
        set(),
        5,
    )
    assert data.takes_all
    assert data.matches_tags_code(123)


def test_tags():
    data = build_subscription("T", " A || B||A ", "TAG")
    assert data.sub_string == " A || B||A "
    assert data.tags_set == {"A", "B"}
    assert data.code_set == {65, 66}
    assert not data.takes_all
    assert data.matches_tags_code(65)
    assert not data.matches_tags_code(67)
    assert split_tags("B || A || B") == ["B", "A"]


def test_collision_passes():
    data = build_subscription("T", "Aa")
    assert data.matches_tags_code(java_string_hash("BB"))


def test_sql_is_kept_as_it_is():
    data = build_subscription("T", "a > 5", "SQL92")
    assert (data.sub_string, data.expression_type, data.code_set) == ("a > 5", "SQL92", set())
    assert not data.takes_all


@pytest.mark.parametrize(
    ("expression", "kind"),
    [(" || ", None), ("||", "TAG"), ("", "SQL92"), (None, "SQL92"), (" ", "SQL92")],
)
def test_expressions_that_say_nothing(expression, kind):
    with pytest.raises(ValueError, match="expression"):
        build_subscription("T", expression, kind)


def test_types_of_expression():
    assert [is_tag_type(kind) for kind in (None, "", "TAG", "SQL92")] == [True, True, True, False]


def test_json():
    data = build_subscription("T", "A || B", sub_version=9)
    text = (
        b'{"classFilterMode":false,"codeSet":[65,66],"expressionType":"TAG",'
        b'"subString":"A || B","subVersion":9,"tagsSet":["A","B"],"topic":"T"}'
    )
    assert data.encode() == text
    assert SubscriptionData.decode(text) == data
