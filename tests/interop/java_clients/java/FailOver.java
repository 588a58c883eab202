import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers and consumers that run while the master of a broker group changes.
 *
 *   FailOver NAMESRV TOPIC POLL_MS CONSUMERS
 *
 * A body is KIND-NUMBER; the clients fetch routes and send heartbeats each POLL_MS. A line is one verb: `send` and `pause` start
 * and stop the producers' threads, `consume` starts CONSUMERS push consumers in each group. `events` returns what happened since the last call as arrays:
 * `sent` (body, time, status), `failed` (body, time, error), or a group (body, time, queue, offset, time of its birth).
 * Times are in milliseconds of the clock.
 */
public final class FailOver {
    private static final int PLAIN_PAUSE_MS = 5;
    private static final int OTHER_PAUSE_MS = 100;
    /** After an exception, as an application that does not spin. */
    private static final int ERROR_PAUSE_MS = 20;
    private static final int TIMED_MS = 6_000;
    private static final int LEVEL = 3;

    private final String namesrv;
    private final String topic;
    private final int pollMs;
    private final int consumers;
    private final Queue<String> events = new ConcurrentLinkedQueue<>();
    private final List<Thread> threads = new ArrayList<>();
    private final AtomicInteger numbers = new AtomicInteger();
    private DefaultMQProducer plain;
    private TransactionMQProducer transactional;
    private volatile boolean sends;

    private FailOver(String[] args) {
        namesrv = args[0];
        topic = args[1];
        pollMs = Integer.parseInt(args[2]);
        consumers = Integer.parseInt(args[3]);
    }

    private interface Sender {
        SendResult send(Message message) throws Exception;
    }

    private void event(Object... items) {
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < items.length; i++) {
            out.append(i == 0 ? "" : ",").append(items[i] instanceof Number ? items[i].toString() : Lines.quote((String) items[i]));
        }
        events.add(out.append(']').toString());
    }

    private <T extends ClientConfig> T set(T client, String instance) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(instance);
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(pollMs);
        client.setHeartbeatBrokerInterval(pollMs);
        return client;
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    // ---- producers ------------------------------------------------------------------------------------------------

    /** A body's words before its number: what the producer says at once, and when the broker asks. */
    private static LocalTransactionState state(Message message, int place) {
        String[] words = text(message).split("-")[0].split(" ");
        switch (words[Math.min(place, words.length - 1)]) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    private void startProducers() throws Exception {
        plain = set(new DefaultMQProducer("plain"), "plain");
        plain.start();
        transactional = set(new TransactionMQProducer("transactional"), "transactional");
        transactional.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(message, 0);
            }

            @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return state(message, 1);
            }
        });
        transactional.start();
    }

    private void run(int pauseMs, Sender sender, String... kinds) {
        Thread thread = new Thread(() -> {
            for (int i = 0; sends; i++) {
                String body = kinds[i % kinds.length] + "-" + numbers.getAndIncrement();
                try {
                    SendResult result = sender.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
                    event("sent", body, System.currentTimeMillis(), result.getSendStatus().name());
                    Thread.sleep(pauseMs);
                } catch (InterruptedException ended) {
                    return;
                } catch (Exception error) {
                    event("failed", body, System.currentTimeMillis(), kind(error));
                    try {
                        Thread.sleep(ERROR_PAUSE_MS);
                    } catch (InterruptedException ended) {
                        return;
                    }
                }
            }
        }, kinds[0]);
        threads.add(thread);
        thread.start();
    }

    /** The class of an error or of its cause, with the broker's code and remark. */
    private static String kind(Exception error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        String name = cause.getClass().getSimpleName();
        if (!(cause instanceof MQBrokerException)) {
            return name;
        }
        MQBrokerException answer = (MQBrokerException) cause;
        return name + " " + answer.getResponseCode() + " " + answer.getErrorMessage();
    }

    private void send() throws Exception {
        if (plain == null) {
            startProducers();
        }
        sends = true;
        run(PLAIN_PAUSE_MS, plain::send, "plain");
        run(OTHER_PAUSE_MS, message -> transactional.sendMessageInTransaction(message, null),
            "commit", "unknown commit", "rollback", "unknown rollback");
        run(OTHER_PAUSE_MS, message -> {
            message.setDelayTimeLevel(LEVEL);
            return plain.send(message);
        }, "delayed");
        run(OTHER_PAUSE_MS, message -> {
            message.setDelayTimeMs(TIMED_MS);
            return plain.send(message);
        }, "timed");
    }

    private void pause() throws Exception {
        sends = false;
        for (Thread thread : threads) {
            thread.join();
        }
        threads.clear();
    }

    // ---- consumers ------------------------------------------------------------------------------------------------

    private void received(String group, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            event(group, text(message), System.currentTimeMillis(), message.getQueueId(), message.getQueueOffset(),
                message.getBornTimestamp());
        }
    }

    private DefaultMQPushConsumer consumer(String group, int number) throws Exception {
        DefaultMQPushConsumer consumer = set(new DefaultMQPushConsumer(group), group + number);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private void consume() throws Exception {
        for (int number = 0; number < consumers; number++) {
            for (String group : new String[] {"concurrent", "popped"}) {
                DefaultMQPushConsumer consumer = consumer(group, number);
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    received(group, messages);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
                if (group.equals("popped")) {
                    consumer.setClientRebalance(false); // the broker says whether to pop
                    consumer.setPopInvisibleTime(10_000);
                }
                consumer.start();
            }
            DefaultMQPushConsumer consumer = consumer("ordered", number);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                received("ordered", messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
        }
    }

    private String events() {
        List<String> found = new ArrayList<>();
        for (String event = events.poll(); event != null; event = events.poll()) {
            found.add(event);
        }
        return "[" + String.join(",", found) + "]";
    }

    private String answer(String verb) throws Exception {
        switch (verb) {
            case "send": send(); return "[]";
            case "pause": pause(); return "[]";
            case "consume": consume(); return "[]";
            case "events": return events();
            default: throw new IllegalArgumentException(verb);
        }
    }

    public static void main(String[] args) throws Exception {
        FailOver clients = new FailOver(args);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String verb = in.readLine(); verb != null; verb = in.readLine()) {
            System.out.println(clients.answer(verb));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
