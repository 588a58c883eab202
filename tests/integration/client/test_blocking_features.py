"""Transactions, requests and popping through the blocking client."""

from pathlib import Path
from typing import Any

import pytest

import rocketpy
from rocketpy.sync import connect
from rocketpy.testing.cluster import ClusterThread


def test_transactions_requests_and_popping_without_await(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        producer = client.producer()
        with producer.transaction("orders", b"kept") as kept:
            assert kept.half.status is rocketpy.SendStatus.SEND_OK
        assert kept.is_confirmed
        with pytest.raises(KeyError), producer.transaction("orders", b"dropped") as dropped:
            raise KeyError
        assert dropped.state is rocketpy.TxState.ROLLBACK
        producer.send("quotes", b"first")
        with client.responder("quotes", group="r", handler=lambda message: message.body + b"!"):
            assert producer.request("quotes", b"q", timeout=20).body == b"q!"
        with client.pop_consumer("orders", group="p", start="earliest") as consumer:
            message = next(iter(consumer))
            assert (message.body, message.id) == (b"kept", kept.id)
            consumer.change_invisible(message, 30)
            consumer.nack(message, -1)
        assert cluster.message_count("%DLQ%p") == 1


def test_popping_in_a_namespace(tmp_path: Path) -> None:
    options: Any = {"group": "p", "start": "earliest"}
    with (
        ClusterThread(tmp_path) as cluster,
        connect(cluster.namesrv, namespace="ns") as client,
        connect(cluster.namesrv) as other,
    ):
        client.producer().send("orders", b"inside")
        other.producer().send("orders", b"outside")
        with client.pop_consumer("orders", **options) as consumer:
            message = next(iter(consumer))
            assert (message.topic, message.body) == ("orders", b"inside")
            assert message.queue.topic == "ns%orders"
            consumer.ack(message)
