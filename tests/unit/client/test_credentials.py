"""Accounts and signatures: the bytes Apache's own classes give, and nothing secret in sight."""

import logging

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.config import ClientConfig
from rocketpy.client.credentials import Credentials, RequestSigner, find_credentials
from rocketpy.errors import ConfigError
from rocketpy.proto.wire.command import make_request
from tests.unit.client.sim import Cluster, run_sim

SECRETS = ("s3cret-key", "t0ken")


@pytest.mark.parametrize(
    ("credentials", "fields", "body", "signature"),
    [
        (
            Credentials("rocketmq2", "12345678"),
            {"consumerGroup": "g1", "topic": "t1", "queueId": "3"},
            b"body",
            "PAoH08zcTO1T9lXFG13CnQWW2OE=",
        ),
        (
            Credentials("ak", "sk", "token"),
            {"b": "é", "a": "1"},
            b"",
            "DsDt55PPKDPdFV7O/m5bVQAGN+M=",
        ),
        (Credentials("ak", "秘密"), {}, b"\x00\xff", "xCmBNf0kylRHUSUndVc6DR37hlc="),
    ],
)
def test_signature_is_apaches(
    credentials: Credentials, fields: dict[str, str], body: bytes, signature: str
) -> None:
    request = make_request(14, dict(fields), body)
    signer = RequestSigner(credentials)
    for _ in range(2):  # a request that is sent again is signed again
        signer.before_request("a:1", request)
        assert request.ext_fields["Signature"] == signature
    given = {"AccessKey": credentials.access_key, "Signature": signature, **fields}
    if credentials.security_token:
        given["SecurityToken"] = credentials.security_token
    assert request.ext_fields == given


def test_every_request_of_a_client_is_signed(caplog: pytest.LogCaptureFixture) -> None:
    account = Credentials("shop", *SECRETS)

    async def main(cluster: Cluster) -> None:
        async with cluster.client(credentials=account) as client:
            producer = client.producer()
            await producer.send("t", b"x")
            producer.send_oneway("t", b"y")
            async with client.consumer("t", group="c", start="earliest") as consumer:
                async for _ in consumer:
                    break
        for _, request in cluster.requests:
            assert request.ext_fields["AccessKey"] == "shop"
            assert request.ext_fields["SecurityToken"] == "t0ken"
            assert request.ext_fields["Signature"]

    with caplog.at_level(logging.DEBUG):
        run_sim(main)
    assert not any(secret in caplog.text for secret in SECRETS[:1])


def test_secrets_are_not_shown() -> None:
    account = Credentials("shop", *SECRETS)
    for shown in (repr(account), str(account), repr(ClientConfig(credentials=account))):
        assert "shop" in shown
        assert not any(secret in shown for secret in SECRETS)


def test_account_comes_from_the_option_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN"):
        monkeypatch.delenv(f"ROCKETPY_{name}", raising=False)
    assert find_credentials(None) is None
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "env")
    with pytest.raises(ConfigError, match="ROCKETPY_SECRET_KEY") as caught:
        rocketpy.admin.connect("127.0.0.1:1")
    assert "env'" not in str(caught.value)
    monkeypatch.setenv("ROCKETPY_SECRET_KEY", "secret")
    monkeypatch.setenv("ROCKETPY_SECURITY_TOKEN", "token")
    assert find_credentials(None) == Credentials("env", "secret", "token")
    given = Credentials("mine", "own")
    assert find_credentials(given) is given


@pytest.mark.parametrize("keys", [("", "x"), ("x", "")])
def test_account_has_both_keys(keys: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        rocketpy.Credentials(*keys)
