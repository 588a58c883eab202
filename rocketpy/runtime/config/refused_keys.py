"""Keys of Apache with values that RocketPy must not ignore.

These keys decide what is stored, where, how many copies there are, which servers are asked, or
which clients may connect.
A server that ignored them would start as something else than its configuration describes: without
access control, as the only copy, or on an empty store. Such a value is therefore an error, unless
the operator accepts it by name (`--accept-ignored KEY`).

A misspelt key of this kind is an error as well (`GUARDED_KEYS`).

Keys that only tune the implementation of Apache are warnings (`apache_keys.unsupported_reason`).
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Refusal(NamedTuple):
    """Condition under which a value is harmless, and the texts for all other values.

    Attributes:
        is_harmless: returns whether a value asks for nothing that RocketPy lacks.
        reason: the missing feature and the consequence.
        advice: what the operator can do.
    """

    is_harmless: Callable[[str], bool]
    reason: str
    advice: str


def _only(*values: str) -> Callable[[str], bool]:
    """Accept some values; case is ignored, as by Apache for true and false."""
    lowered = {value.lower() for value in values}
    return lambda text: text.strip().lower() in lowered


_OFF: Final = _only("", "false")
_ON: Final = _only("", "true")
_UNSET: Final = _only("", "null")

_REMOVE: Final = "remove the key"
_ACCESS: Final = (
    "RocketPy does not check accounts or permissions for this key: every client that reaches the "
    "port could read, write and delete everything"
)
_ACCESS_ADVICE: Final = "protect the port by the network and remove the key"
_COPIES: Final = "RocketPy has no such mode: copies would be missing, or a slave would stay one"
_COPIES_ADVICE: Final = "remove the key, and set brokerRole and inSyncReplicas (replication guide)"
_ROCKSDB: Final = "RocketPy has no RocksDB engine: what Apache stored there would be missing"
_ROCKSDB_ADVICE: Final = (
    "let Apache's broker finish or export what it stored there, then remove the key"
)
_TIERED: Final = (
    "RocketPy has no tiered storage: messages are stored in the local directory only, and those "
    "that only the other tier holds would be missing"
)
_TIERED_ADVICE: Final = (
    "let Apache's broker bring them back to the local store, then remove the keys of tiered storage"
)
_PLAIN_TEXT: Final = "this server connects to other servers in plain text"
_MOVED: Final = "move the file into storePathRootDir, as {}, and remove the key"
_NAME_SERVERS: Final = "the addresses of the name servers are read from namesrvAddr only"


def _both(keys: str, refusal: Refusal) -> dict[str, Refusal]:
    return dict.fromkeys(keys.split(), refusal)


REFUSALS: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        # Which clients may connect.
        **_both(
            "aclEnable authenticationEnabled authorizationEnabled migrateAuthFromV1Enabled",
            Refusal(_OFF, _ACCESS, _ACCESS_ADVICE),
        ),
        **_both(
            "tls.enable useTLS",
            Refusal(_OFF, _PLAIN_TEXT, "use a trusted network and remove the key"),
        ),
        "tls.config.file": Refusal(
            _UNSET,
            "the file is not read, so its certificates and its tls.server.mode are unknown",
            "write its tls.server.* keys into this configuration",
        ),
        # Which store is used.
        "storeType": Refusal(
            _only("", "default"),
            "RocketPy has no RocksDB engine: queues, topics and offsets of such a store would be "
            "missing, and messages would be delivered again or never",
            "migrate with Apache's broker to storeType=default",
        ),
        "configManagerVersion": Refusal(_only("", "v1"), _ROCKSDB, _ROCKSDB_ADVICE),
        **_both(
            "combineCQPreferCQType combineAssignOffsetCQType",
            Refusal(_only("", "default"), _ROCKSDB, _ROCKSDB_ADVICE),
        ),
        "combineCQLoadingCQTypes": Refusal(
            lambda text: not text.strip() or "default" in text.split(";"),
            _ROCKSDB,
            _ROCKSDB_ADVICE,
        ),
        **_both(
            "rocksdbCQDoubleWriteEnable useSingleRocksDBForAllConfigs timerRocksDBEnable "
            "transRocksDBEnable indexRocksDBEnable popConsumerKVServiceInit "
            "popConsumerKVServiceEnable",
            Refusal(_OFF, _ROCKSDB, _ROCKSDB_ADVICE),
        ),
        "storePathCommitLog": Refusal(
            lambda text: "," not in text,
            "RocketPy has no commit log of several directories: the list would be taken as the "
            "name of one, and existing messages would be missing",
            "move all files of the commit log into one directory and name that",
        ),
        "readOnlyCommitLogStorePaths": Refusal(
            _UNSET,
            "RocketPy has no commit log of several directories: messages in these would be missing",
            "move their files into the directory of storePathCommitLog and remove the key",
        ),
        "storePathEpochFile": Refusal(
            _UNSET,
            "the epochs of a replica are in storePathRootDir: those in this file would be missing, "
            "and the replica would begin again with an empty log",
            _MOVED.format("epochFileCheckpoint"),
        ),
        "storePathBrokerIdentity": Refusal(
            _UNSET,
            "the identity of a replica is in storePathRootDir: the one in this file would be "
            "missing, and the replica would join its group as a new one",
            _MOVED.format("brokerIdentity"),
        ),
        "messageStorePlugIn": Refusal(
            _UNSET,
            "RocketPy has no store plug-ins such as tiered storage: messages that only the "
            "plug-in holds would be missing",
            "let Apache's broker bring them back to the local store, then remove the key",
        ),
        "tieredStorageLevel": Refusal(_only("", "disable", "0"), _TIERED, _TIERED_ADVICE),
        **_both(
            "tieredBackendServiceProvider tieredMetadataServiceProvider tieredStoreFilePath "
            "tieredStoreFilepath tieredStoreFileReservedTime objectStoreEndpoint "
            "objectStoreBucket",
            Refusal(_UNSET, _TIERED, _TIERED_ADVICE),
        ),
        "enableConsumeQueueExt": Refusal(
            _OFF,
            "consume queues have no extension files: filters by tag would miss messages whose "
            "entries point to such a file",
            "consume what Apache's broker stored, then remove the key",
        ),
        "timerWheelSnapshotFlush": Refusal(
            _OFF,
            "snapshots of the timer wheel are not read: timed messages would be late or lost",
            "set it to false, and let Apache's broker stop cleanly once with that",
        ),
        **_both(
            "enableLmq enableMultiDispatch",
            Refusal(
                _OFF,
                "light message queues are not supported: messages would be stored without them",
                _REMOVE,
            ),
        ),
        **_both(
            "enabledAppendPropCRC forceVerifyPropCRC",
            Refusal(
                _OFF,
                "RocketPy stores no checksum of the properties: a broker of Apache that verifies "
                "it would take RocketPy's records for damaged",
                _REMOVE,
            ),
        ),
        "clearRetryTopicWhenDeleteTopic": Refusal(
            _ON, "the retry topics of pop are always deleted with their topic", _REMOVE
        ),
        # How many copies there are.
        "enableDLegerCommitLog": Refusal(
            _OFF,
            "RocketPy has no DLedger: each member of the group would be an unreplicated master of "
            "the same name",
            "run its members as a group with a controller (replication guide), with new store "
            "directories, and remove the key",
        ),
        "asyncLearner": Refusal(
            _OFF,
            "RocketPy has no learners: the replica would be waited for by senders, and could be "
            "elected as master",
            "run it as a replica that may be elected, and remove the key",
        ),
        "duplicationEnable": Refusal(_OFF, _COPIES, _COPIES_ADVICE),
        "fetchControllerAddrByDnsLookup": Refusal(
            _OFF,
            "the addresses of the controllers are read from controllerAddr only, and a name there "
            "stands for one controller: the others would not be asked",
            "list every controller in controllerAddr and remove the key",
        ),
        # In which cluster the broker appears.
        **_both(
            "fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup",
            Refusal(
                _OFF,
                f"{_NAME_SERVERS}: clients would not find this broker",
                "list every name server in namesrvAddr and remove the key",
            ),
        ),
    }
)
"""Refusals by key; keys and values are Apache's (5.4.0)."""

_BLACKLIST: Final = "configBlackList"
REFUSABLE_KEYS: Final = frozenset(REFUSALS) | {_BLACKLIST}
"""Keys with values that are refused, and that `--accept-ignored` may name."""

_STORED: Final = """
    storePathRootDir storePathCommitLog flushDiskType fileReservedTime cleanFileForciblyEnable
    diskMaxUsedSpaceRatio brokerPermission dataDir kvConfigPath controllerStorePath
    controllerStorage
"""
_COPIED: Final = """
    brokerId brokerRole inSyncReplicas minInSyncReplicas enableControllerMode
    allAckInSyncStateSet
"""
_ASKED: Final = "namesrvAddr controllerAddr haMasterAddress"
_ENTERED: Final = """
    haAllowedPeers haTlsEnable replicationSecretFile
    bindAddress tls.server.mode tls.server.need.client.auth tls.server.keyPath tls.server.certPath
    tls.server.trustCertPath
"""
GUARDED_KEYS: Final = REFUSABLE_KEYS | frozenset(f"{_STORED} {_COPIED} {_ASKED} {_ENTERED}".split())
"""Keys whose misspelling is an error: the server would start as another one than is described."""


def refusal_of(key: str, text: str, live_keys: Collection[str]) -> Refusal | None:
    """Return why a value must not be ignored; None if it may.

    Args:
        key: the key.
        text: its value.
        live_keys: keys that can be changed from the network.
    """
    if key == _BLACKLIST:
        exposed = [name for part in text.split(";") if (name := part.strip()) in live_keys]
        if not exposed:
            return None
        return Refusal(
            _UNSET,
            f"clients could still change {', '.join(exposed)} while the server runs",
            "protect the port by the network and remove the key",
        )
    refusal = REFUSALS.get(key)
    return None if refusal is None or refusal.is_harmless(text) else refusal


def is_harmless(key: str, text: str) -> bool:
    """Return whether a value of a refusable key asks for nothing that RocketPy lacks."""
    refusal = REFUSALS.get(key)
    return refusal is not None and refusal.is_harmless(text)
