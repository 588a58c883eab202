"""The last 4.9 client against the same cluster, seen by the 5.4.0 tools."""

from tests.interop.mqadmin.jvm import Actor
from tests.interop.mqadmin.world import World, rows, wait_for


def test_4_9_client(world: World) -> None:
    world.create_topic("AdmOld", 2)
    old = Actor(world.cluster.namesrv, is_old=True)
    try:
        assert old.do("producer", "oldP")["ok"]
        assert old.do("consumer", "oldG", "AdmOld", "*")["ok"]
        sent = old.do("send", "oldP", "AdmOld", 6, "body", "tag", "key")["sent"]
        assert [one["status"] for one in sent] == ["SEND_OK"] * 6
        got: list[str] = []

        def has_all() -> bool:
            got.extend(one["body"] for one in old.do("received", "oldG")["received"])
            return len(got) >= 6

        wait_for(has_all)
        assert sorted(got) == [f"body-{number}" for number in range(6)]
        out = world.run("consumerConnection", "-g", "oldG")
        assert "V4_9_8" in out
        assert ["AdmOld", "*"] in rows(out)
        # A 4.9 producer tells a broker of itself only with its next heartbeat.
        wait_for(lambda: "V4_9_8" in world.run("producerConnection", "-g", "oldP", "-t", "AdmOld"))
    finally:
        old.close()
