"""Unsupported features as the official Java client sees them."""

import pytest

from tests.interop.java_clients.jvm import JavaClient, JavaError


def test_sql_that_is_no_condition(java: JavaClient, topic: str, group: str) -> None:
    java.send(java.producer(), topic)
    with pytest.raises(JavaError) as caught:
        java.push(group, topic, sql="a > 1 AND b == 5")
    assert (caught.value.name, caught.value.code) == ("MQClientException", 23)
    assert "at character 14: " in str(caught.value)
