"""Why an app is not ready, for probes."""

import asyncio

import pytest

from rocketpy import App, ReceivedMessage
from rocketpy.errors import ConfigError
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim


def codes(app: App) -> list[str]:
    return [each.code for each in app.not_ready()]


def test_app_is_ready_from_the_end_of_its_start_until_its_stop() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())
        seen: list[list[str]] = []

        @app.on_start
        async def begin() -> None:
            seen.append(codes(app))

        @app.on_stop
        async def end() -> None:
            seen.append(codes(app))

        @app.subscribe("t", group="billing")
        async def bill(message: ReceivedMessage) -> None: ...

        assert codes(app) == ["starting"]
        serving = asyncio.create_task(app.serve())
        await pass_time(5)
        assert app.not_ready() == []
        app.stop()
        assert codes(app) == ["stopping"]
        await serving
        assert codes(app) == ["stopping"]
        assert seen == [["starting"], ["stopping"]]
        assert "the app " in app.not_ready()[0].message

    run_sim(main)


def test_app_whose_consumer_fails_is_not_ready_and_names_the_group() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())

        @app.subscribe("absent", group="billing")
        async def bill(message: ReceivedMessage) -> None: ...

        async with app:
            await pass_time(60)
            found = app.not_ready()
            assert [each.code for each in found] == ["consumer_failed"]
            assert "group billing: " in found[0].message
            assert "absent" in found[0].message

    run_sim(main)


def test_app_whose_client_was_closed_is_not_ready() -> None:
    async def main(cluster: Cluster) -> None:
        app = App(cluster.client())
        async with app:
            await app.client.close()
            assert codes(app) == ["client_closed"]

    run_sim(main)


@pytest.mark.parametrize("port", [-1, 65_536, "8080", True])
async def test_health_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=r"health_port: .* is not a port"):
        await App(NAMESRV).serve(health_port=port)
