"""Filters by tags and by SQL92 conditions, and their cache."""

import pytest

from rocketpy.broker.filters import message_filters as filters
from rocketpy.broker.filters.message_filters import ExpressionCache, filter_of
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.subscription import build_subscription
from rocketpy.sql92.condition import MAX_EXPRESSION_CHARS


def test_tag_filter_matches_tags_of_subscription() -> None:
    assert filter_of(build_subscription("T", "*")) is None
    found = filter_of(build_subscription("T", "a || b"))
    assert found is not None
    assert found.matches_tags_code(tags_code("b"))
    assert not found.matches_tags_code(tags_code("c"))


def test_expression_cache_returns_cached_filter() -> None:
    cache = ExpressionCache()
    assert cache.filter_of("*") is None
    assert cache.filter_of("a || b") is cache.filter_of("a || b")


def test_expression_too_long_is_refused() -> None:
    cache = ExpressionCache()
    with pytest.raises(ValueError, match=str(MAX_EXPRESSION_CHARS)):
        cache.filter_of("x" * (MAX_EXPRESSION_CHARS + 1))
    assert cache.size_bytes == 0
    with pytest.raises(ValueError, match="no tag"):
        cache.filter_of(" || ")


@pytest.mark.parametrize(("expression", "kind"), [("a = ", "SQL92"), (" || ", "TAG")])
def test_expression_cache_caches_errors(
    expression: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ExpressionCache()
    with pytest.raises(ValueError, match=r".+") as first:
        cache.filter_of(expression, kind)
    monkeypatch.delattr(filters, "Condition")
    monkeypatch.delattr(filters, "check_expression")
    with pytest.raises(ValueError, match=r".+") as second:
        cache.filter_of(expression, kind)
    assert str(second.value) == str(first.value)
    assert 0 < cache.size_bytes < 1_000


def test_expression_cache_size_is_bounded() -> None:
    cache = ExpressionCache()
    highest = 0
    for number in range(100):
        cache.filter_of("||".join(f"{number}x{index}" for index in range(1_500)))
        highest = max(highest, cache.size_bytes)
    assert highest <= filters._MAX_CACHED_BYTES
    assert cache.size_bytes > 0


def test_expression_cache_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_MAX_CACHED_COUNT", 2)
    cache = ExpressionCache()
    first = cache.filter_of("a")
    cache.filter_of("b")
    assert cache.filter_of("a") is first
    cache.filter_of("c")
    assert cache.filter_of("a") is not first, "it was emptied to make room"
