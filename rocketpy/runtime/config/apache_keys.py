"""Configuration keys of Apache 5.4.0, to distinguish unsupported keys from misspelt ones.

Source: the fields of MessageStoreConfig, BrokerConfig, BrokerIdentity, NamesrvConfig,
NettyServerConfig, NettyClientConfig, AuthConfig and TlsSystemConfig, and of the store plug-in for
tiered storage, 5.4.0
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_STORE: Final = """
    storePathRootDir storePathCommitLog storePathDLedgerCommitLog storePathEpochFile
    storePathBrokerIdentity readOnlyCommitLogStorePaths mappedFileSizeCommitLog
    compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal
    maxOffsetMapSize compactionThreadNum enableCompaction mappedFileSizeTimerLog
    timerPrecisionMs timerRollWindowSlot timerFlushIntervalMs timerGetMessageThreadNum
    timerPutMessageThreadNum timerEnableDisruptor timerEnableCheckMetrics
    timerInterceptDelayLevel timerMaxDelaySec timerWheelSnapshotFlush timerWheelEnable
    disappearTimeAfterStart timerStopEnqueue timerCheckMetricsWhen timerSkipUnknownError
    timerWarmEnable timerStopDequeue timerEnableRetryUntilSuccess timerCongestNumEachSlot
    timerMetricSmallThreshold timerProgressLogIntervalMs timerWheelSnapshotIntervalMs
    commitLogRecoverMaxNum timerRocksDBEnable timerRocksDBStopScan timerRocksDBPrecisionMs
    timerRocksDBRollMaxTps timerRocksDBTimeExpiredMaxTps timerRocksDBRollIntervalHours
    timerRocksDBRollRangeHours timerRecallToTimeWheelEnable timerRecallToTimelineEnable
    transRocksDBEnable transWriteOriginTransHalfEnable indexRocksDBEnable
    maxRocksDBIndexQueryDays indexFileWriteEnable indexFileReadEnable storeType
    mappedFileSizeConsumeQueue enableConsumeQueueExt mappedFileSizeConsumeQueueExt
    mapperFileSizeBatchConsumeQueue bitMapLengthConsumeQueueExt flushIntervalCommitLog
    commitIntervalCommitLog maxRecoveryCommitlogFiles diskSpaceWarningLevelRatio
    diskSpaceCleanForciblyRatio useReentrantLockWhenPutMessage flushCommitLogTimed
    flushIntervalConsumeQueue cleanResourceInterval deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly redeleteHangedFileInterval
    deleteWhen diskMaxUsedSpaceRatio fileReservedTime deleteFileBatchMax putMsgIndexHightWater
    maxMessageSize maxFilterMessageSize checkCRCOnRecover flushCommitLogLeastPages
    commitCommitLogLeastPages flushLeastPagesWhenWarmMapedFile flushConsumeQueueLeastPages
    flushCommitLogThoroughInterval commitCommitLogThoroughInterval
    flushConsumeQueueThoroughInterval maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk
    maxTransferCountOnMessageInDisk accessMessageInMemoryMaxRatio messageIndexEnable
    maxHashSlotNum maxIndexNum maxMsgsNumBatch messageIndexSafe haListenPort
    haSendHeartbeatInterval haHousekeepingInterval haTransferBatchSize haMasterAddress
    haMaxGapNotInSync haSlaveFallbehindMax brokerRole flushDiskType syncFlushTimeout
    putMessageTimeout slaveTimeout
    messageDelayLevel flushDelayOffsetInterval cleanFileForciblyEnable warmMapedFileEnable
    offsetCheckInSlave debugLockEnable duplicationEnable diskFallRecorded
    osPageCacheBusyTimeOutMills defaultQueryMaxNum transientStorePoolEnable
    transientStorePoolSize fastFailIfNoBufferInStorePool writeWithoutMmap enableDLegerCommitLog
    dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId enableBatchPush
    enableScheduleMessageStats enableLmq enableMultiDispatch maxLmqConsumeQueueNum
    enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked maxBatchDeleteFilesNum dispatchCqThreads
    dispatchCqCacheNum enableAsyncReput recheckReputOffsetFromCq maxTopicLength
    autoMessageVersionOnTopicLen enableRunningFlagsInFlush enabledAppendPropCRC
    forceVerifyPropCRC travelCqFileNumWhenGetMessage correctLogicMinOffsetSleepInterval
    correctLogicMinOffsetForceInterval mappedFileSwapEnable commitLogForceSwapMapInterval
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval cleanSwapedMapInterval logicQueueSwapMapReserveFileNum
    searchBcqByCacheEnable dispatchFromSenderThread wakeCommitWhenPutMessage
    wakeFlushWhenPutMessage enableCleanExpiredOffset maxAsyncPutMessageRequests
    pullBatchMaxMessageCount totalReplicas inSyncReplicas minInSyncReplicas allAckInSyncStateSet
    enableAutoInSyncReplicas haFlowControlEnable maxHaTransferByteInSecond
    haMaxTimeSlaveNotCatchup syncMasterFlushOffsetWhenStartup maxChecksumRange
    replicasPerDiskPartition logicalDiskSpaceCleanForciblyThreshold maxSlaveResendLength
    syncFromLastFile asyncLearner maxConsumeQueueScan sampleCountThreshold
    coldDataFlowControlEnable coldDataScanEnable dataReadAheadEnable
    timerColdDataCheckIntervalMs sampleSteps accessMessageInMemoryHotRatio
    enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums
    cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec memTableFlushIntervalMs
    realTimePersistRocksDBConfig enableRocksDBLog topicQueueLockNum readUnCommitted
    putConsumeQueueDataByFileChannel rocksdbCQDoubleWriteEnable combineCQLoadingCQTypes
    combineCQPreferCQType combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQMaxExtraSearchCommitLogFiles bottomMostCompressionTypeForConsumeQueueStore
    rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
    enableAcceleratedRecovery sharedByteBufferNum spinLockCollisionRetreatOptimalDegree
    useABSLock enableLogConsumeQueueRepeatedlyBuildWhenRecover appendTopicForTimerDeleteKey
"""

_BROKER: Final = """
    brokerConfigPath rocketmqHome namesrvAddr listenPort brokerIP1 brokerIP2 recoverConcurrently
    brokerPermission defaultTopicQueueNums autoCreateTopicEnable clusterTopicEnable
    brokerTopicEnable autoCreateSubscriptionGroup messageStorePlugIn msgTraceTopicName
    traceTopicEnable sendMessageThreadPoolNums putMessageFutureThreadPoolNums
    pullMessageThreadPoolNums litePullMessageThreadPoolNums ackMessageThreadPoolNums
    processReplyMessageThreadPoolNums queryMessageThreadPoolNums adminBrokerThreadPoolNums
    clientManageThreadPoolNums consumerManageThreadPoolNums loadBalanceProcessorThreadPoolNums
    heartbeatThreadPoolNums recoverThreadPoolNums endTransactionThreadPoolNums
    flushConsumerOffsetInterval flushConsumerOffsetHistoryInterval rejectTransactionMessage
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer sendThreadPoolQueueCapacity
    putThreadPoolQueueCapacity pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity
    ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
    clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
    heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity
    adminBrokerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity longPollingEnable
    shortPollingTimeMills notifyConsumerIdsChangedEnable highSpeedMode commercialBaseCount
    commercialSizePerMsg accountStatsEnable accountStatsPrintZeroValues
    maxStatsIdleTimeInMinutes transferMsgByHeap regionId registerBrokerTimeoutMills
    sendHeartbeatTimeoutMillis slaveReadEnable disableConsumeIfConsumerReadSlowly
    consumerFallbehindThreshold brokerFastFailureEnable waitTimeMillsInSendQueue
    waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    startAcceptSendRequestTimeStamp traceOn enableCalcFilterBitMap rejectPullConsumerEnable
    expectConsumerNumUseFilter maxErrorRateOfBloomFilter filterDataCleanTimeSpan
    filterSupportRetry enablePropertyFilter compressedRegister forceRegister
    registerNameServerPeriod updateNameServerAddrPeriod brokerHeartbeatInterval
    brokerNotActiveTimeoutMillis enableNetWorkFlowControl enableBroadcastOffsetStore
    broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond popPollingSize popPollingMapSize
    popPollingMapExpireTimeSeconds maxPopPollingSize reviveQueueNum reviveInterval reviveMaxSlow
    reviveScanTime enableSkipLongAwaitingAck reviveAckWaitMs enablePopLog enablePopBufferMerge
    popCkStayBufferTime popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize
    enablePopBatchAck popLongPollingForceNotifyInterval enableNotifyBeforePopCalculateLag
    enableNotifyAfterPopOrderLockRelease initPopOffsetByCheckMsgInMem
    retrieveMessageFromPopRetryTopicV1 enableRetryTopicV2 popFromRetryProbability
    popFromRetryProbabilityForPriority priorityOrderAsc popConsumerFSServiceInit
    popConsumerKVServiceLog popConsumerKVServiceInit popConsumerKVServiceEnable
    popReviveMaxReturnSizePerRead popReviveConcurrency popReviveMaxAttemptTimes
    useSeparateRetryQueue realTimeNotifyConsumerChange litePullMessageEnable
    syncBrokerMemberGroupPeriod loadBalancePollNameServerInterval cleanOfflineBrokerInterval
    serverLoadBalancerEnable defaultMessageRequestMode defaultPopShareQueueNum
    transactionTimeOut transactionCheckMax transactionCheckInterval
    transactionMetricFlushInterval transactionOpMsgMaxSize transactionOpBatchInterval aclEnable
    storeReplyMessageEnable enableDetailStat autoDeleteUnusedStats isolateLogEnable
    forwardTimeout enableSlaveActingMaster enableRemoteEscape skipPreOnline asyncSendEnable
    useServerSideResetOffset consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep
    lockInStrictMode compatibleWithOldNameSrv enableControllerMode controllerAddr
    fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
    syncControllerMetadataPeriod controllerHeartBeatTimeoutMills
    validateSystemTopicWhenUpdateTopic brokerElectionPriority useStaticSubscription
    metricsExporterType metricsOtelCardinalityLimit metricsGrpcExporterTarget
    metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills
    metricLoggingExporterIntervalInMills metricsPromExporterPort metricsPromExporterHost
    metricsLabel metricsInDelta enableRemotingMetrics enableMessageStoreMetrics enablePopMetrics
    enableConnectionMetrics enableTransactionMetrics enableStatsMetrics enableRequestMetrics
    enableLagAndDlqMetrics channelExpiredTimeout subscriptionExpiredTimeout estimateAccumulation
    coldCtrStrategyEnable usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold
    fetchNamesrvAddrInterval popResponseReturnActualRetryTopic enableSingleTopicRegister
    enableMixedMessageType enableSplitRegistration enableSplitMetadata splitMetadataSize
    popInflightMessageThreshold enablePopMessageThreshold enableFastChannelEventProcess
    printChannelGroups printChannelGroupsMinNum splitRegistrationSize configBlackList
    skipWhenCKRePutReachMaxTimes appendAckAsync appendCkAsync clearRetryTopicWhenDeleteTopic
    enableLmqStats configManagerVersion useSingleRocksDBForAllConfigs
    allowRecallWhenBrokerNotWriteable recallMessageEnable enableRegisterProducer
    enableCreateSysGroup brokerName brokerClusterName brokerId isBrokerContainer
    isInBrokerContainer
"""

_NAMESRV: Final = """
    rocketmqHome kvConfigPath configStorePath productEnvName clusterTest orderMessageEnable
    returnOrderTopicConfigToBroker clientRequestThreadPoolNums defaultThreadPoolNums
    clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity
    scanNotActiveBrokerInterval unRegisterBrokerQueueCapacity supportActingMaster
    enableAllTopicList enableTopicList notifyMinBrokerIdChanged enableControllerInNamesrv
    needWaitForService waitSecondsForService deleteTopicWithBrokerRegistration configBlackList
"""

_CONTROLLER: Final = """
    rocketmqHome configStorePath controllerType scanNotActiveBrokerInterval
    controllerThreadPoolNums controllerRequestThreadPoolQueueCapacity controllerDLegerGroup
    controllerDLegerPeers controllerDLegerSelfId mappedFileSize controllerStorePath
    electMasterMaxRetryCount enableElectUncleanMaster isProcessReadEvent notifyBrokerRoleChanged
    scanInactiveMasterInterval metricsExporterType metricsGrpcExporterTarget
    metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills
    metricLoggingExporterIntervalInMills metricsPromExporterPort metricsPromExporterHost
    metricsLabel metricsInDelta configBlackList jRaftElectionTimeoutMs jRaftScanWaitTimeoutMs
    jRaftSnapshotIntervalSecs jRaftGroupId jRaftServerId jRaftInitConf jRaftControllerRPCAddr
"""

_SERVER: Final = """
    bindAddress listenPort serverWorkerThreads serverCallbackExecutorThreads
    serverSelectorThreads serverOnewaySemaphoreValue serverAsyncSemaphoreValue
    serverChannelMaxIdleTimeSeconds serverSocketSndBufSize serverSocketRcvBufSize
    writeBufferHighWaterMark writeBufferLowWaterMark serverSocketBacklog
    serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable enableShutdownGracefully
    shutdownWaitTimeSeconds useEpollNativeSelector
"""

_CLIENT: Final = """
    clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue
    clientAsyncSemaphoreValue connectTimeoutMillis channelNotActiveInterval
    isScanAvailableNameSrv clientChannelMaxIdleTimeSeconds clientSocketSndBufSize
    clientSocketRcvBufSize clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout useTLS
    socksProxyConfig disableCallbackExecutor disableNettyWorkerGroup
    maxReconnectIntervalTimeSeconds enableReconnectForGoAway
"""

_AUTH: Final = """
    configName clusterName authConfigPath authenticationEnabled authenticationProvider
    authenticationMetadataProvider authenticationStrategy authenticationWhitelist
    initAuthenticationUser innerClientAuthenticationCredentials authorizationEnabled
    authorizationProvider authorizationMetadataProvider authorizationStrategy
    authorizationWhitelist migrateAuthFromV1Enabled userCacheMaxNum userCacheExpiredSecond
    userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond
    statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
    statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond
"""

_TLS: Final = """
    tls.server.mode tls.server.keyPath tls.server.keyPassword tls.server.certPath
    tls.server.trustCertPath tls.server.authClient tls.server.need.client.auth
    tls.client.keyPath tls.client.keyPassword tls.client.certPath tls.client.authServer
    tls.client.trustCertPath tls.config.file tls.enable
"""

_TIERED: Final = """
    tieredStorageLevel tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize
    tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum
    tieredStoreIndexFileRollingIdleInterval tieredMetadataServiceProvider
    tieredBackendServiceProvider tieredStoreFileReservedTime tieredStoreDeleteFileEnable
    tieredStoreDeleteFileInterval tieredStoreGroupCommit tieredStoreGroupCommitTimeout
    tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreMaxGroupCommitCount
    tieredStoreMaxFallBehindSize tieredStoreMaxPendingLimit tieredStoreCrcCheckEnable
    tieredStoreFilePath tieredStoreFilepath objectStoreEndpoint objectStoreBucket
    objectStoreAccessKey objectStoreSecretKey commitLogRollingInterval
    commitLogRollingMinimumSize maxCommitJitter readAheadCacheEnable
    readAheadMessageCountThreshold readAheadMessageSizeThreshold readAheadCacheExpireDuration
    readAheadCacheSizeThresholdRate recordGetMessageResult
"""

APACHE_KEYS: Final = frozenset(
    f"{_STORE}{_BROKER}{_NAMESRV}{_CONTROLLER}{_SERVER}{_CLIENT}{_AUTH}{_TLS}{_TIERED}".split()
)
"""All keys of Apache; names are case-sensitive."""

_REPLICATION: Final = "it is a key of a broker that is replicated"
_NO_DLEDGER: Final = "RocketPy has no DLedger; a broker is replicated by brokerRole or a controller"

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "enableCalcFilterBitMap": "conditions are evaluated when messages are pulled",
        "enableConsumeQueueExt": "consume queues have no extension files",
        "filterSupportRetry": "redelivered messages have matched the filter before",
        "duplicationEnable": "a broker is a master or a slave, by brokerRole",
        "maxSlaveResendLength": "a slave reports its end instead",
        "syncMasterFlushOffsetWhenStartup": "a slave compares its log with the master's instead",
        "checkSyncStateSetPeriod": "the sync-state set is checked ten times a second",
        "syncControllerMetadataPeriod": "the leading controller is looked for when one fails",
        "syncFromLastFile": "a slave always gets the whole log",
        "haSlaveFallbehindMax": "it is named haMaxGapNotInSync now",
        "enableBroadcastOffsetStore": "broadcast consumers store their offsets themselves",
        "realTimeNotifyConsumerChange": "members of a group are always notified immediately",
        "subscriptionExpiredTimeout": "a subscription is removed with its last member",
        "lockInStrictMode": "this broker alone grants the locks of its queues",
        "forceRegister": "every registration contains all topics",
        "compressedRegister": "registrations are small enough",
        "enableDetailStat": "all statistics are always enabled",
        "accountStatsEnable": "all statistics are always enabled",
        "messageIndexSafe": "recovery always rebuilds entries beyond the checkpoint",
        "autoMessageVersionOnTopicLen": "topics have at most 127 bytes, as in record version 1",
        "deleteConsumeQueueFilesInterval": "queue files are deleted together with their messages",
        "destroyMapedFileIntervalForcibly": "a deleted file stays readable for its current readers",
        "redeleteHangedFileInterval": "a deleted file stays readable for its current readers",
        "timerStopEnqueue": "timed messages are always added to the timer wheel",
        "timerStopDequeue": "timed messages are always delivered",
        "timerCongestNumEachSlot": "a slot of the timer wheel has no limit of messages",
        "timerWarmEnable": "messages are read when they are due",
        "appendTopicForTimerDeleteKey": "a recall names the message; both forms are understood",
        "enableScheduleAsyncDeliver": "deliveries never wait for the disk",
        "controllerThreadPoolNums": "the requests of brokers are short",
        "controllerRequestThreadPoolQueueCapacity": "the requests of brokers are short",
        "mappedFileSize": "the state of a controller is one file of 4 MiB, or in etcd",
        "electMasterMaxRetryCount": "an election is repeated until it succeeds",
        "isProcessReadEvent": "the leading controller answers from its memory",
        "scanInactiveMasterInterval": "an election is checked when a heartbeat falls due",
        "diskFallRecorded": "the lag of consumers is computed on request",
    }
)
"""Individual keys without an effect, and the reasons."""

_FRAGMENTS: Final = (
    # The first fragment that the lower-cased key contains determines the reason.
    ("rocksdb", "RocketPy has no RocksDB engine; files are the default store type's"),
    ("controller", "it is a key of a controller, or of a broker in controller mode"),
    ("unclean", "it is a key of a controller"),
    ("rolechanged", "it is a key of a controller"),
    ("jraft", "RocketPy's controllers speak no jRaft; several share their state in etcd"),
    ("dleger", _NO_DLEDGER),
    ("dledger", _NO_DLEDGER),
    ("combinecq", "RocketPy has no RocksDB engine; files are the default store type's"),
    ("preferredleader", _NO_DLEDGER),
    ("compaction", "compacted topics are not supported"),
    ("offsetmap", "compacted topics are not supported"),
    ("tiered", "tiered storage is not supported"),
    ("objectstore", "tiered storage is not supported"),
    ("commitlogrolling", "tiered storage is not supported"),
    ("commitjitter", "tiered storage is not supported"),
    ("readahead", "it tunes reads of tiered storage, which is not supported"),
    ("recordgetmessage", "tiered storage is not supported"),
    ("lmq", "light message queues are not supported"),
    ("multidispatch", "light message queues are not supported"),
    ("colddata", "cold data flow control is not needed: nothing is locked in memory"),
    ("coldctr", "cold data flow control is not needed: nothing is locked in memory"),
    ("transientstore", "there is no off-heap buffer between a message and its file"),
    ("bytebuf", "it tunes Netty, which is not used here"),
    ("netty", "it tunes Netty, which is not used here"),
    ("epoll", "it tunes Netty, which is not used here"),
    ("semaphore", "it tunes Netty, which is not used here"),
    ("warmmaped", "files are allocated ahead instead of warmed"),
    ("swap", "files are not unmapped and mapped again"),
    ("configstorepath", "no path is ever written because of a request from the network"),
    ("rocketmqhome", "RocketPy needs no home directory"),
    ("blacklist", "remote changes are an allow-list here"),
    ("metric", "this server does not export metrics by this key"),
    ("authen", "accounts are not checked"),
    ("authoriz", "permissions are not checked"),
    ("acl", "permissions are not checked"),
    ("usercache", "accounts are not checked"),
    ("migrateauth", "accounts are not checked"),
    ("authconfig", "accounts are not checked"),
    ("authclient", "a client certificate that is asked for is always verified"),
    ("tls", "this server connects to other servers in plain text"),
    ("socksproxy", "this server connects to other servers directly"),
    ("insync", _REPLICATION),
    ("slave", _REPLICATION),
    ("syncstateset", _REPLICATION),
    ("hatransfer", _REPLICATION),
    ("haflow", _REPLICATION),
    ("resend", "messages are stored before a delivery is counted"),
    ("container", "each broker runs in a separate process"),
    ("plugin", "there are no store plug-ins"),
    ("readonlycommitlog", "the commit log has one directory"),
    ("propcrc", "properties have no checksum"),
    ("consumequeueext", "consume queues have no extension files"),
    ("batchpush", _NO_DLEDGER),
    ("escape", "it is a key of a broker with enableSlaveActingMaster"),
    ("supportacting", "it is a key of a name server"),
    ("enableslaveacting", "it is a key of a broker; a name server has supportActingMaster"),
    ("addressserver", "name servers are listed in namesrvAddr"),
    ("dnslookup", "name servers are listed in namesrvAddr"),
    ("addrinterval", "name servers are listed in namesrvAddr"),
    ("addrperiod", "name servers are listed in namesrvAddr"),
    ("register", "registrations have a fixed form"),
    ("registration", "registrations have a fixed form"),
    ("splitmetadata", "registrations have a fixed form"),
    ("splitmetadatasize", "registrations have a fixed form"),
    ("clustertest", "routes come from registered brokers only"),
    ("productenv", "routes come from registered brokers only"),
    ("threadpool", "requests of this kind have no thread pool here"),
    ("threadnum", "work of this kind has no thread pool here"),
    ("threads", "it sizes thread pools of the JVM"),
    ("queuecapacity", "requests of this kind have no thread pool here"),
    ("waittimemills", "requests of this kind have no thread pool here"),
    ("stat", "statistics have fixed limits"),
    ("commercial", "there is no commercial accounting"),
    ("coldata", "cold data flow control is not needed: nothing is locked in memory"),
    ("pop", "pop keeps its state in the revive topic with fixed limits"),
    ("revive", "pop keeps its state in the revive topic with fixed limits"),
    ("timer", "timed messages have one delivery service with fixed limits"),
    ("mmap", "it tunes memory mapping of the JVM"),
    ("lock", "it tunes locks of the JVM"),
    ("reput", "messages are dispatched when they are stored"),
    ("dispatch", "messages are dispatched when they are stored"),
    ("recover", "recovery reads what the checkpoint does not cover"),
    ("flowcontrol", "pulls have fixed limits"),
    ("buffer", "it tunes buffers of the JVM"),
    ("channel", "connections are checked by their requests"),
)


def unsupported_reason(key: str) -> str:
    """Return the reason why a key of Apache has no effect.

    Args:
        key: one of `APACHE_KEYS`.
    """
    known = REASONS.get(key)
    if known is not None:
        return known
    lowered = key.lower()
    for fragment, reason in _FRAGMENTS:
        if fragment in lowered:
            return reason
    return "nothing in this server depends on it"
