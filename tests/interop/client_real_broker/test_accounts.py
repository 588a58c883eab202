"""Our client and our tools at the real broker with access control on."""

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

import rocketpy
import rocketpy.admin
from rocketpy.errors import BrokerError
from rocketpy.spark.schema import default_schema
from rocketpy.spark.sink.writer import batch_writer
from rocketpy.spark.source.format import batch_reader
from tests.peer.apache import Apache, require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.long]

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
    require_peer()
    with Apache(tmp_path_factory.mktemp("apache"), SETTINGS).borrowed() as servers:
        yield servers.namesrv


async def test_signed_client_is_served(namesrv: str) -> None:
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


def spark_write(options: dict[str, str], bodies: list[bytes]) -> None:
    """Write rows as a task of Spark's does."""
    schema = StructType([StructField("body", BinaryType())])
    writer = batch_writer(options, schema, overwrite=False)
    TaskContext._getOrCreate()._partitionId = 0
    try:
        writer.write(iter([pa.RecordBatch.from_pydict({"body": bodies})]))
    finally:
        TaskContext._setTaskContext(None)


def spark_read(options: dict[str, str]) -> list[bytes]:
    reader = batch_reader(options, default_schema(options))
    parts = reader.partitions()
    return [row["body"] for part in parts for b in reader.read(part) for row in b.to_pylist()]


async def test_spark_reads_and_writes_with_an_account(namesrv: str) -> None:
    async with rocketpy.admin.connect(namesrv, credentials=USER) as admin:
        await admin.create_topic("spark-accounts", queues=2)
    servers = {"nameservers": namesrv}
    account = servers | {"accessKey": USER.access_key, "secretKey": USER.secret_key}
    topic, subscribe = {"topic": "spark-accounts"}, {"subscribe": "spark-accounts"}
    bodies = [b"body-%d" % number for number in range(50)]

    await asyncio.to_thread(spark_write, account | topic, bodies)

    found: list[bytes] = []
    for _ in range(100):  # Apache's broker shows what it has stored a moment later
        found = await asyncio.to_thread(spark_read, account | subscribe)
        if len(found) >= len(bodies):
            break
        await asyncio.sleep(0.1)
    assert sorted(found) == sorted(bodies)
    wrong = account | {"secretKey": "wrong"}
    for given in (servers, wrong):
        with pytest.raises(BrokerError):
            await asyncio.to_thread(spark_read, given | subscribe)
        with pytest.raises(BrokerError):
            await asyncio.to_thread(spark_write, given | topic, [b"x"])


@pytest.mark.parametrize(
    "credentials", [None, rocketpy.Credentials("operator", "wrong"), rocketpy.Credentials("x", "y")]
)
async def test_client_without_the_key_is_refused(
    namesrv: str, credentials: rocketpy.Credentials | None
) -> None:
    async with rocketpy.connect(namesrv, credentials=credentials) as client:
        with pytest.raises(BrokerError) as caught:
            await client.producer(retries=0).send("accounts", b"x")
        assert caught.value.code in {1, 16}
