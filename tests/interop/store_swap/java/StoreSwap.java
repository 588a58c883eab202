import com.alibaba.fastjson.JSON;
import java.io.File;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store directory with Apache's DefaultMessageStore.
 *
 * <pre>
 * dump DIR OUT QUERIES              load, write what is found as one JSON object a line
 * fill DIR FIRST COUNT clean|kill   load, start, put messages FIRST to FIRST+COUNT-1; close, or die as they are
 * </pre>
 *
 * Sizes: -DcommitLog -DconsumeQueue -Dslots -Dindexes. QUERIES has a topic, a key and a type ("" or "T") a line,
 * separated by tabs. fill prints one line a message: queue id, queue offset, physical offset.
 */
public class StoreSwap {
    public static void main(String[] args) throws Exception {
        DefaultMessageStore store = open(args[1]);
        if (args[0].equals("dump")) {
            dump(store, args[2], args[3]);
        } else {
            fill(store, Integer.parseInt(args[2]), Integer.parseInt(args[3]), args[4].equals("clean"));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static DefaultMessageStore open(String dir) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.getInteger("commitLog"));
        config.setMappedFileSizeConsumeQueue(Integer.getInteger("consumeQueue"));
        config.setMapperFileSizeBatchConsumeQueue(13800);
        config.setMaxHashSlotNum(Integer.getInteger("slots"));
        config.setMaxIndexNum(Integer.getInteger("indexes"));
        config.setMappedFileSizeTimerLog(102400);
        config.setMaxMessageSize(262144);
        config.setMaxMsgsNumBatch(1000000);
        config.setEnableCompaction(false);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        Path path = Paths.get(dir, "config/topics.json");
        if (Files.exists(path)) {
            String text = new String(Files.readAllBytes(path), StandardCharsets.UTF_8);
            topics.putAll(RemotingSerializable.fromJson(text, TopicConfigSerializeWrapper.class).getTopicConfigTable());
        }
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager(broker), null, broker, topics);
        if (!store.load()) {
            System.out.println("load failed");
            System.out.flush();
            Runtime.getRuntime().halt(3);
        }
        return store;
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes == null ? new byte[0] : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    static void dump(DefaultMessageStore store, String out, String queries) throws Exception {
        try (PrintStream to = new PrintStream(out, "UTF-8")) {
            Map<String, Object> log = new LinkedHashMap<>();
            log.put("kind", "log");
            log.put("min", store.getMinPhyOffset());
            log.put("max", store.getMaxPhyOffset());
            to.println(JSON.toJSONString(log));
            for (Map<Integer, ConsumeQueueInterface> queues : new TreeMap<>(table(store)).values()) {
                for (ConsumeQueueInterface queue : new TreeMap<>(queues).values()) {
                    dumpQueue(store, queue, to);
                }
            }
            for (String line : Files.readAllLines(Paths.get(queries), StandardCharsets.UTF_8)) {
                String[] parts = line.split("\t", -1);
                List<Long> found = new ArrayList<>(store.getIndexService()
                    .queryOffset(parts[0], parts[1], 1000000, 0, Long.MAX_VALUE, parts[2]).getPhyOffsets());
                Map<String, Object> index = new LinkedHashMap<>();
                index.put("kind", "index");
                index.put("topic", parts[0]);
                index.put("key", parts[1]);
                index.put("type", parts[2]);
                index.put("found", found);
                to.println(JSON.toJSONString(index));
            }
        }
    }

    @SuppressWarnings("unchecked")
    static Map<String, Map<Integer, ConsumeQueueInterface>> table(DefaultMessageStore store) {
        return (Map<String, Map<Integer, ConsumeQueueInterface>>) (Map<?, ?>) store.getConsumeQueueTable();
    }

    static void dumpQueue(DefaultMessageStore store, ConsumeQueueInterface queue, PrintStream to) {
        long min = queue.getMinOffsetInQueue();
        long max = queue.getMaxOffsetInQueue();
        Map<String, Object> head = new LinkedHashMap<>();
        head.put("kind", "queue");
        head.put("topic", queue.getTopic());
        head.put("queue", queue.getQueueId());
        head.put("min", min);
        head.put("max", max);
        to.println(JSON.toJSONString(head));
        for (long offset = min; offset < max; offset++) {
            CqUnit unit = queue.get(offset);
            if (unit == null) {
                break;
            }
            Map<String, Object> entry = new LinkedHashMap<>();
            entry.put("kind", "entry");
            entry.put("topic", queue.getTopic());
            entry.put("queue", queue.getQueueId());
            entry.put("offset", unit.getQueueOffset());
            entry.put("phy", unit.getPos());
            entry.put("size", unit.getSize());
            entry.put("tagsCode", unit.getTagsCode());
            SelectMappedBufferResult stored = store.getCommitLog().getMessage(unit.getPos(), unit.getSize());
            if (stored != null) {
                ByteBuffer bytes = stored.getByteBuffer();
                MessageExt message = MessageDecoder.decode(bytes, true, false, false);
                stored.release();
                if (message != null) {
                    entry.put("storedTopic", message.getTopic());
                    entry.put("storedOffset", message.getQueueOffset());
                    entry.put("storeTime", message.getStoreTimestamp());
                    entry.put("bornTime", message.getBornTimestamp());
                    entry.put("flag", message.getFlag());
                    entry.put("sysFlag", message.getSysFlag());
                    entry.put("body", hex(message.getBody()));
                    entry.put("properties", new TreeMap<>(message.getProperties()));
                }
            }
            to.println(JSON.toJSONString(entry));
            offset = unit.getQueueOffset() + Math.max(1, unit.getBatchNum()) - 1;
        }
    }

    static void fill(DefaultMessageStore store, int first, int count, boolean clean) throws Exception {
        store.start();
        for (int number = first; number < first + count; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("Swap");
            message.setQueueId(number % 3);
            message.setBody(("java-" + number + "-" + "x".repeat(number % 400)).getBytes(StandardCharsets.UTF_8));
            message.setBornTimestamp(number);
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            MessageAccessor.setProperties(message, new HashMap<>());
            message.setKeys("key-" + number + " shared");
            message.setTags(number % 2 == 0 ? "even" : "odd");
            MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F000001JAVA%020X", number));
            message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new IllegalStateException("put " + number + ": " + result.getPutMessageStatus());
            }
            System.out.println(message.getQueueId() + " " + result.getAppendMessageResult().getLogicsOffset()
                + " " + result.getAppendMessageResult().getWroteOffset());
        }
        if (clean) {
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(10);
            }
            store.shutdown();
            System.out.println("abort left: " + new File(store.getMessageStoreConfig().getStorePathRootDir(), "abort").exists());
        }
    }
}
