import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Everything the official Java client does with a broker, driven line by line; compiles against 4.9.8 and 5.4.0.
 *
 *   Interop NAMESRV
 *
 * A line is a verb and options key=value, separated by tabs (see Lines); each is answered by one JSON line.
 * The methods named as the verbs say what they take. The end of standard input stops all.
 */
public final class Interop {
    private static final int MAX_TEXT = 500;
    /** A stall of a busy machine is no failure of what is tested. */
    private static final int LIMIT_MS = 30_000;

    private final String namesrv;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> pushes = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulls = new HashMap<>();
    private final Map<String, Queue<String>> received = new HashMap<>();

    private Interop(String namesrv) {
        this.namesrv = namesrv;
    }

    /** One line, taken apart. */
    private static final class Options {
        private final Map<String, String> values = new LinkedHashMap<>();

        Options(List<String> words) {
            for (String word : words) {
                int at = word.indexOf('=');
                values.put(word.substring(0, at), word.substring(at + 1));
            }
        }

        String text(String key, String otherwise) {
            return values.getOrDefault(key, otherwise);
        }

        String text(String key) {
            String value = values.get(key);
            if (value == null) {
                throw new IllegalArgumentException("needs " + key);
            }
            return value;
        }

        int number(String key, int otherwise) {
            return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
        }
    }

    // ---- what goes back -------------------------------------------------------------------------------------------

    private static String object(Object... pairs) {
        StringBuilder out = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            out.append(i == 0 ? "" : ",").append(Lines.quote((String) pairs[i])).append(':');
            Object value = pairs[i + 1];
            boolean raw = value instanceof Number || value instanceof Boolean || value instanceof Raw;
            out.append(raw ? value.toString() : Lines.quote((String) value));
        }
        return out.append('}').toString();
    }

    /** JSON already. */
    private static final class Raw {
        private final String json;

        Raw(String json) {
            this.json = json;
        }

        @Override public String toString() {
            return json;
        }
    }

    private static Raw array(Collection<String> jsons) {
        return new Raw("[" + String.join(",", jsons) + "]");
    }

    private static Raw map(Map<String, String> values) {
        List<Object> pairs = new ArrayList<>();
        new TreeMap<>(values).forEach((key, value) -> {
            pairs.add(key);
            pairs.add(value);
        });
        return new Raw(object(pairs.toArray()));
    }

    private static String of(SendResult result) {
        return object("status", result.getSendStatus().name(), "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(),
            "broker", result.getMessageQueue().getBrokerName(), "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset(), "regionId", result.getRegionId(),
            "recallHandle", called(result, "getRecallHandle"));
    }

    /** Call a method that only newer clients have; null where it is missing. */
    private static Object called(Object object, String method, Object... arguments) {
        Class<?>[] types = Arrays.stream(arguments).map(Object::getClass).toArray(Class<?>[]::new);
        try {
            return object.getClass().getMethod(method, types).invoke(object, arguments);
        } catch (NoSuchMethodException missing) {
            return null;
        } catch (java.lang.reflect.InvocationTargetException failed) {
            throw new IllegalStateException(failed.getCause());
        } catch (IllegalAccessException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** recall name topic handle: call a timed message back. */
    private String recall(Options line) {
        DefaultMQProducer producer = producers.get(line.text("name"));
        return object("msgId", called(producer, "recallMessage", line.text("topic"), line.text("handle")));
    }

    private static String of(Throwable error) {
        int code = error instanceof MQBrokerException ? ((MQBrokerException) error).getResponseCode()
            : error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : -1;
        StringBuilder text = new StringBuilder(String.valueOf(error.getMessage()));
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append(" <- ").append(cause);
        }
        return object("error", error.getClass().getSimpleName(), "code", code, "text", text.toString());
    }

    private static String of(MessageExt message) {
        byte[] body = message.getBody();
        CRC32 crc = new CRC32();
        crc.update(body);
        String text = body.length > MAX_TEXT ? null : new String(body, StandardCharsets.UTF_8);
        return object("topic", message.getTopic(), "msgId", message.getMsgId(), "body", text, "bytes", body.length, "crc", crc.getValue(),
            "tags", message.getTags(), "keys", message.getKeys(), "broker", message.getBrokerName(), "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(), "sysFlag", message.getSysFlag(), "flag", message.getFlag(),
            "born", message.getBornTimestamp(), "stored", message.getStoreTimestamp(), "bornHost", message.getBornHostString(),
            "reconsumeTimes", message.getReconsumeTimes(), "thread", Thread.currentThread().getName(),
            "properties", map(message.getProperties()));
    }

    private static String of(MessageQueue queue) {
        return object("topic", queue.getTopic(), "broker", queue.getBrokerName(), "queueId", queue.getQueueId());
    }

    private static Raw queues(Collection<MessageQueue> queues) {
        List<String> out = new ArrayList<>();
        queues.stream().sorted().forEach(queue -> out.add(of(queue)));
        return array(out);
    }

    private static Raw messages(Collection<MessageExt> messages) {
        List<String> out = new ArrayList<>();
        messages.forEach(message -> out.add(of(message)));
        return array(out);
    }

    // ---- producers ------------------------------------------------------------------------------------------------

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** What a body says of its transaction: commit, rollback or unknown at first, the same later, as in "unknown commit". */
    private static LocalTransactionState state(String body, int place) {
        String[] words = body.split("[ -]");
        switch (words[Math.min(place, words.length - 1)]) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    /** The namespace of a client as 4.9 and 5.x write it into names (ns), or as 5.1 and later tell it beside them (ns2). */
    private static void inNamespace(ClientConfig client, Options line) {
        if (line.values.containsKey("ns")) {
            client.setNamespace(line.text("ns"));
        }
        if (line.values.containsKey("ns2")) {
            called(client, "setNamespaceV2", line.text("ns2"));
        }
    }

    /** producer name [namesrv] [ns | ns2] [max: largest body] [trace] [kind=transaction] [group]; `received` is what it was asked about. */
    private String producer(Options line) throws Exception {
        String name = line.text("name");
        DefaultMQProducer producer;
        if (line.text("kind", "").equals("transaction")) {
            TransactionMQProducer transactional = new TransactionMQProducer(line.text("group", name));
            Queue<String> checked = new ConcurrentLinkedQueue<>();
            received.put(name, checked);
            transactional.setTransactionListener(new TransactionListener() {
                @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return state(text(message), 0);
                }

                @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    checked.add(of(message));
                    return state(text(message), 1);
                }
            });
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(name, line.values.containsKey("trace"), null);
        }
        producer.setNamesrvAddr(line.text("namesrv", namesrv));
        producer.setInstanceName(name);
        inNamespace(producer, line);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(LIMIT_MS);
        producer.setMqClientApiTimeout(LIMIT_MS);
        producer.setMaxMessageSize(line.number("max", producer.getMaxMessageSize()));
        producer.start();
        producers.put(name, producer);
        return object("ok", true, "serialization", RemotingCommand.getSerializeTypeConfigInThisServer().name());
    }

    private static Message message(Options line, int number) {
        String text = line.text("body", "body") + "-" + number;
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        int size = line.number("size", 0);
        if (size > body.length) {
            int used = body.length;
            body = Arrays.copyOf(body, size);
            for (int i = used; i < size; i++) {
                body[i] = (byte) ('a' + i % 23);
            }
        }
        Message message = new Message(line.text("topic"), body);
        String[] tags = line.text("tags", "").split(",");
        if (!tags[number % tags.length].isEmpty()) {
            message.setTags(tags[number % tags.length]);
        }
        if (!line.text("key", "").isEmpty()) {
            message.setKeys(Arrays.asList(line.text("key") + "-" + number, "all"));
        }
        line.values.forEach((key, value) -> {
            if (key.startsWith("user.")) {
                message.putUserProperty(key.substring(5), value);
            }
        });
        message.setFlag(line.number("flag", 0));
        if (line.number("delay", 0) > 0) {
            message.setDelayTimeLevel(line.number("delay", 0));
        }
        // An old client has no name for these; a new one lets no user set them by hand.
        for (String name : new String[] {"TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"}) {
            if (!line.text(name, "").isEmpty()) {
                MessageAccessor.putProperty(message, name, line.text(name));
            }
        }
        return message;
    }

    private static void async(DefaultMQProducer producer, List<Message> messages, Collection<String> sent, Collection<String> errors)
        throws Exception {
        CountDownLatch left = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override public void onSuccess(SendResult result) {
                    sent.add(of(result));
                    left.countDown();
                }

                @Override public void onException(Throwable error) {
                    errors.add(of(error));
                    left.countDown();
                }
            });
        }
        if (!left.await(100, TimeUnit.SECONDS)) {
            errors.add(object("error", "NoCallback", "code", -1, "text", left.getCount() + " callbacks did not come"));
        }
    }

    private static String one(DefaultMQProducer producer, Options line, Message message) throws Exception {
        switch (line.text("mode", "sync")) {
            case "sync": return of(producer.send(message));
            case "hash": return of(producer.send(message, new SelectMessageQueueByHash(), line.text("argument")));
            case "queue": return of(producer.send(message, new MessageQueue(message.getTopic(), line.text("broker"), line.number("queue", 0))));
            case "request": return of((MessageExt) producer.request(message, LIMIT_MS));
            case "transaction": return of(producer.sendMessageInTransaction(message, null));
            case "oneway":
                producer.sendOneway(message);
                return object("msgId", MessageClientIDSetter.getUniqID(message));
            default: throw new IllegalArgumentException("mode");
        }
    }

    /** send name topic [mode] [count] [body] [size] [tags=a,b] [key] [flag] [delay] [user.X=...] [argument | broker, queue]. */
    private String send(Options line) throws Exception {
        DefaultMQProducer producer = producers.get(line.text("name"));
        Queue<String> sent = new ConcurrentLinkedQueue<>();
        Queue<String> errors = new ConcurrentLinkedQueue<>();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < line.number("count", 1); i++) {
            messages.add(message(line, i));
        }
        String mode = line.text("mode", "sync");
        if (mode.equals("async")) {
            async(producer, messages, sent, errors);
        } else if (mode.equals("batch")) {
            try {
                sent.add(of(producer.send(messages)));
            } catch (Exception error) {
                errors.add(of(error));
            }
        } else {
            for (Message message : messages) {
                try {
                    sent.add(one(producer, line, message));
                } catch (Exception error) {
                    errors.add(of(error));
                }
            }
        }
        return object("sent", array(sent), "errors", array(errors));
    }

    /** look name topic queue broker [at]: min, max, the offset at a time. */
    private String look(Options line) throws Exception {
        DefaultMQProducer producer = producers.get(line.text("name"));
        MessageQueue queue = new MessageQueue(line.text("topic"), line.text("broker"), line.number("queue", 0));
        return object("min", producer.minOffset(queue), "max", producer.maxOffset(queue),
            "at", producer.searchOffset(queue, Long.parseLong(line.text("at", "0"))),
            "earliest", producer.earliestMsgStoreTime(queue));
    }

    /** query name topic key: messages with a key. */
    private String query(Options line) throws Exception {
        QueryResult result = producers.get(line.text("name"))
            .queryMessage(line.text("topic"), line.text("key"), 64, 0, System.currentTimeMillis() + 60_000);
        return object("messages", messages(result.getMessageList()));
    }

    /** view name topic id: one message by either of its ids. */
    private String view(Options line) throws Exception {
        return object("messages", messages(Collections.singletonList(
            producers.get(line.text("name")).viewMessage(line.text("topic"), line.text("id")))));
    }

    // ---- push consumers -------------------------------------------------------------------------------------------

    private MessageListenerConcurrently concurrently(Queue<String> got, AtomicInteger failures, int level) {
        return (messages, context) -> {
            if (failures.getAndDecrement() > 0) {
                context.setDelayLevelWhenNextConsume(level);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            messages.forEach(message -> got.add(of(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private MessageListenerOrderly orderly(Queue<String> got, AtomicInteger failures) {
        return (messages, context) -> {
            if (failures.getAndDecrement() > 0) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            messages.forEach(message -> got.add(of(message)));
            return ConsumeOrderlyStatus.SUCCESS;
        };
    }

    /** push name group topic [ns | ns2] [expression | sql] [from=first|last|yyyyMMddHHmmss] [model=broadcasting] [listener=orderly] [fail [level]] [tries] [batch] [trace]. */
    private String push(Options line) throws Exception {
        String name = line.text("name");
        Queue<String> got = new ConcurrentLinkedQueue<>();
        AtomicInteger failures = new AtomicInteger(line.number("fail", 0));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(line.text("group"), line.values.containsKey("trace"), null);
        consumer.setNamesrvAddr(line.text("namesrv", namesrv));
        consumer.setInstanceName(name);
        inNamespace(consumer, line);
        consumer.setVipChannelEnabled(false);
        String from = line.text("from", "first");
        if (from.equals("first")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        } else if (from.equals("last")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        } else {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
            consumer.setConsumeTimestamp(from);
        }
        if (line.text("model", "").equals("broadcasting")) {
            setBroadcasting(consumer);
        }
        consumer.setMqClientApiTimeout(LIMIT_MS);
        consumer.setMaxReconsumeTimes(line.number("tries", -1));
        if (line.values.containsKey("pop")) {
            // The broker says what is popped; 4.9 has no such method.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.setConsumeMessageBatchMaxSize(line.number("batch", 1));
        if (line.values.containsKey("sql")) {
            consumer.subscribe(line.text("topic"), MessageSelector.bySql(line.text("sql")));
        } else {
            consumer.subscribe(line.text("topic"), line.text("expression", "*"));
        }
        if (line.text("listener", "").equals("orderly")) {
            consumer.registerMessageListener(orderly(got, failures));
        } else {
            consumer.registerMessageListener(concurrently(got, failures, line.number("level", 0)));
        }
        if (line.values.containsKey("answerer")) {
            consumer.registerMessageListener(answering(got, producers.get(line.text("answerer"))));
        }
        consumer.start();
        pushes.put(name, consumer);
        received.put(name, got);
        return object("ok", true, "clientId", consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
    }

    /** Answers each request with its body and "!". */
    private static MessageListenerConcurrently answering(Queue<String> got, DefaultMQProducer producer) {
        return (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    got.add(of(message));
                    if (message.getProperty("REPLY_TO_CLIENT") == null) {
                        continue;
                    }
                    producer.send(MessageUtil.createReplyMessage(message, (text(message) + "!").getBytes(StandardCharsets.UTF_8)), LIMIT_MS);
                }
            } catch (Exception error) {
                got.add(of(error));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    /** MessageModel moved to another package between 4.9 and 5. */
    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    /** received name: what a push consumer got since the last call. */
    private String received(Options line) {
        List<String> out = new ArrayList<>();
        Queue<String> queue = received.get(line.text("name"));
        for (String message = queue.poll(); message != null; message = queue.poll()) {
            out.add(message);
        }
        return object("messages", array(out));
    }

    /** owned name: the queues of a push consumer. */
    private String owned(Options line) {
        return object("queues", queues(pushes.get(line.text("name"))
            .getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()));
    }

    // ---- pull consumers -------------------------------------------------------------------------------------------

    /** lite name group topic [expression: subscribe | else assign every queue]. */
    private String lite(Options line) throws Exception {
        String name = line.text("name");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(line.text("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (line.values.containsKey("expression")) {
            consumer.subscribe(line.text("topic"), line.text("expression"));
        }
        consumer.start();
        lites.put(name, consumer);
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(line.text("topic"));
        if (!line.values.containsKey("expression")) {
            consumer.assign(queues);
        }
        return object("ok", true, "queues", queues(queues));
    }

    /** poll name [wait: ms]. */
    private String poll(Options line) {
        return object("messages", messages(lites.get(line.text("name")).poll(line.number("wait", 1000))));
    }

    /** seek name topic broker queue (offset | at: a time). */
    private String seek(Options line) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(line.text("name"));
        MessageQueue queue = new MessageQueue(line.text("topic"), line.text("broker"), line.number("queue", 0));
        long offset = line.values.containsKey("at")
            ? consumer.offsetForTimestamp(queue, Long.parseLong(line.text("at"))) : Long.parseLong(line.text("offset"));
        consumer.seek(queue, offset);
        return object("offset", offset);
    }

    /** commit name topic broker queue: commit all, say what is committed for one queue. */
    private String commit(Options line) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(line.text("name"));
        consumer.commitSync();
        MessageQueue queue = new MessageQueue(line.text("topic"), line.text("broker"), line.number("queue", 0));
        return object("committed", consumer.committed(queue));
    }

    /** pull group topic broker queue offset [count] [expression] [wait=1: long polling]: the old pull consumer, one request. */
    private String pull(Options line) throws Exception {
        String group = line.text("group");
        DefaultMQPullConsumer consumer = pulls.get(group);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(group);
            consumer.setVipChannelEnabled(false);
            consumer.start();
            pulls.put(group, consumer);
        }
        MessageQueue queue = new MessageQueue(line.text("topic"), line.text("broker"), line.number("queue", 0));
        String expression = line.text("expression", "*");
        long offset = Long.parseLong(line.text("offset"));
        int count = line.number("count", 32);
        PullResult result = line.number("wait", 0) == 1 ? consumer.pullBlockIfNotFound(queue, expression, offset, count)
            : consumer.pull(queue, expression, offset, count);
        return object("status", result.getPullStatus().name(), "next", result.getNextBeginOffset(), "min", result.getMinOffset(),
            "max", result.getMaxOffset(),
            "messages", messages(result.getMsgFoundList() == null ? Collections.emptyList() : result.getMsgFoundList()));
    }

    /** stop name: shut down whatever has that name. */
    private String stop(Options line) {
        String name = line.text("name");
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        DefaultMQPushConsumer push = pushes.remove(name);
        if (push != null) {
            push.shutdown();
        }
        DefaultLitePullConsumer lite = lites.remove(name);
        if (lite != null) {
            lite.shutdown();
        }
        DefaultMQPullConsumer pull = pulls.remove(name);
        if (pull != null) {
            pull.shutdown();
        }
        return object("ok", producer != null || push != null || lite != null || pull != null);
    }

    private String answer(List<String> words) {
        try {
            Options line = new Options(words.subList(1, words.size()));
            switch (words.get(0)) {
                case "producer": return producer(line);
                case "send": return send(line);
                case "recall": return recall(line);
                case "look": return look(line);
                case "query": return query(line);
                case "view": return view(line);
                case "push": return push(line);
                case "received": return received(line);
                case "owned": return owned(line);
                case "lite": return lite(line);
                case "poll": return poll(line);
                case "seek": return seek(line);
                case "commit": return commit(line);
                case "pull": return pull(line);
                case "stop": return stop(line);
                default: return object("error", "unknown verb", "code", -1, "text", words.get(0));
            }
        } catch (Throwable error) {
            return of(error);
        }
    }

    public static void main(String[] args) throws Exception {
        Lines.hastenShutdowns();
        Interop interop = new Interop(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(interop.answer(Lines.words(line)));
            System.out.flush();
        }
        System.exit(0);
    }
}
