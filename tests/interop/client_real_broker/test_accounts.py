"""Our client and our tools at the real broker with access control on."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.errors import BrokerError
from tests.interop.client_real_broker.conftest import PEER, _free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

USER = rocketpy.Credentials("operator", "12345678")
_AUTH = "org.apache.rocketmq.auth.authentication.provider"
SETTINGS = (
    "authenticationEnabled=true",
    f"authenticationProvider={_AUTH}.DefaultAuthenticationProvider",
    f"authenticationMetadataProvider={_AUTH}.LocalAuthenticationMetadataProvider",
    f'initAuthenticationUser={{"username":"{USER.access_key}","password":"{USER.secret_key}"}}',
)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")
    home = tmp_path_factory.mktemp("apache")
    port = _free_port()
    ports = {"PEER_NS_PORT": str(port), "PEER_PORT": str(_free_port()), "PEER_HEAP": "512m"}
    with (home / "start.log").open("wb") as log:
        try:
            subprocess.run(
                ["bash", PEER, "start", home, *SETTINGS],
                env={**os.environ, **ports},
                check=True,
                stdout=log,
                stderr=log,
            )
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run(["bash", PEER, "stop", home], check=True)


async def test_a_signed_client_is_served(namesrv: str) -> None:
    async with rocketpy.admin.connect(namesrv, credentials=USER) as admin:
        await admin.create_topic("accounts", queues=1)
    async with rocketpy.connect(namesrv, credentials=USER) as client:
        sent = await client.producer().send("accounts", b"one", headers={"h": "é"})
        await client.producer().send_batch("accounts", [b"two", b"three"])
        got = []
        async with client.consumer("accounts", group="signed", start="earliest") as consumer:
            async for message in consumer:
                got.append(message.body)
                if len(got) == 3:
                    break
        assert sorted(got) == [b"one", b"three", b"two"]
        assert sent.msg_id


@pytest.mark.parametrize(
    "credentials", [None, rocketpy.Credentials("operator", "wrong"), rocketpy.Credentials("x", "y")]
)
async def test_a_client_without_the_key_is_refused(
    namesrv: str, credentials: rocketpy.Credentials | None
) -> None:
    async with rocketpy.connect(namesrv, credentials=credentials) as client:
        with pytest.raises(BrokerError) as caught:
            await client.producer(retries=0).send("accounts", b"x")
        assert caught.value.code in {1, 16}
