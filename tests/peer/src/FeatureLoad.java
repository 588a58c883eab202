import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A bounded load driver for what goes beyond plain messages, on the official Java client.
 *
 *   FeatureLoad NAMESRV TOPIC transaction WORKERS SECONDS
 *   FeatureLoad NAMESRV TOPIC delay       IN_FLIGHT SECONDS      (level 1, one second; sent and received)
 *   FeatureLoad NAMESRV TOPIC fill        COUNT                  (property a = 0 .. 9 in turn)
 *   FeatureLoad NAMESRV TOPIC sql         EXPECTED SECONDS       (a BETWEEN 0 AND 2: three of ten)
 *   FeatureLoad NAMESRV TOPIC orderly     EXPECTED SECONDS
 *   FeatureLoad NAMESRV TOPIC pop         EXPECTED SECONDS
 *
 * One JSON line is printed: messages, seconds, per second, failures.
 */
public final class FeatureLoad {
    private static final byte[] BODY = "x".repeat(100).getBytes(StandardCharsets.US_ASCII);

    private static void report(String what, long messages, double seconds, long failed) {
        System.out.printf(Locale.ROOT, "{\"what\":\"%s\",\"messages\":%d,\"seconds\":%.2f,\"per_s\":%.0f,\"failed\":%d}%n",
            what, messages, seconds, messages / seconds, failed);
    }

    private static final class Decided implements TransactionListener {
        @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static void transaction(String namesrv, String topic, int workers, int seconds) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("load-transactions");
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.setTransactionListener(new Decided());
        producer.start();
        for (int i = 0; i < 100; i++) {
            producer.sendMessageInTransaction(new Message(topic, BODY), null);
        }
        LongAdder done = new LongAdder();
        LongAdder failed = new LongAdder();
        long start = System.nanoTime();
        long end = start + seconds * 1_000_000_000L;
        List<Thread> threads = new ArrayList<>();
        for (int w = 0; w < workers; w++) {
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        producer.sendMessageInTransaction(new Message(topic, BODY), null);
                        done.increment();
                    } catch (Exception error) {
                        failed.increment();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        report("transaction-" + workers, done.sum(), (System.nanoTime() - start) / 1e9, failed.sum());
        producer.shutdown();
    }

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(String namesrv, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.setVipChannelEnabled(false);
        return consumer;
    }

    private static void delay(String namesrv, String topic, int inFlight, int seconds) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        producer.send(new Message(topic, BODY));
        Counter counter = new Counter();
        DefaultMQPushConsumer consumer = consumer(namesrv, "load-delay-" + System.nanoTime());
        consumer.subscribe(topic, "*");
        String run = Long.toString(System.nanoTime());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            counter.seen(messages.stream().filter(one -> run.equals(one.getUserProperty("run"))).count());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(3000);
        LongAdder sent = new LongAdder();
        LongAdder failed = new LongAdder();
        Semaphore permits = new Semaphore(inFlight);
        long start = System.nanoTime();
        long end = start + seconds * 1_000_000_000L;
        while (System.nanoTime() < end) {
            permits.acquire();
            Message message = new Message(topic, BODY);
            message.putUserProperty("run", run);
            message.setDelayTimeLevel(1);
            producer.send(message, new SendCallback() {
                @Override public void onSuccess(SendResult result) {
                    sent.increment();
                    permits.release();
                }

                @Override public void onException(Throwable error) {
                    failed.increment();
                    permits.release();
                }
            });
        }
        permits.acquire(inFlight);
        counter.await(sent.sum(), 60);
        report("delay", counter.count(), Math.max(1e-9, (counter.last() - start) / 1e9 - 1.0), failed.sum() + sent.sum() - counter.count());
        producer.shutdown();
        consumer.shutdown();
    }

    private static void fill(String namesrv, String topic, long count) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        long start = System.nanoTime();
        for (long at = 0; at < count;) {
            List<Message> batch = new ArrayList<>(50);
            for (int i = 0; i < 50; i++, at++) {
                Message message = new Message(topic, BODY);
                message.putUserProperty("a", Long.toString(at % 10));
                message.putUserProperty("carrier", at % 2 == 0 ? "UA" : "AA");
                batch.add(message);
            }
            producer.send(batch);
        }
        report("fill", count, (System.nanoTime() - start) / 1e9, 0);
        producer.shutdown();
    }

    private static final class Counter {
        private final LongAdder seen = new LongAdder();
        private final AtomicLong first = new AtomicLong();
        private final AtomicLong last = new AtomicLong();

        void seen(long messages) {
            first.compareAndSet(0, System.nanoTime());
            seen.add(messages);
            last.set(System.nanoTime());
        }

        long count() {
            return seen.sum();
        }

        long last() {
            return last.get();
        }

        double seconds() {
            return Math.max(1e-9, (last.get() - first.get()) / 1e9);
        }

        void await(long expected, int seconds) throws InterruptedException {
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            while (System.nanoTime() < end && seen.sum() < expected) {
                Thread.sleep(5);
            }
        }
    }

    private static void drain(String namesrv, String topic, String kind, long expected, int seconds) throws Exception {
        Counter counter = new Counter();
        String group = "load-" + kind + "-" + System.nanoTime();
        DefaultMQPushConsumer consumer = consumer(namesrv, group);
        if (kind.equals("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql("a BETWEEN 0 AND 2 AND carrier IN ('UA', 'AA')"));
        } else {
            consumer.subscribe(topic, "*");
        }
        if (kind.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                counter.seen(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                counter.seen(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        if (kind.equals("pop")) {
            DefaultMQAdminExt admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(namesrv);
            admin.start();
            for (BrokerData broker : admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
                admin.setMessageRequestMode(broker.selectBrokerAddr(), topic, group, MessageRequestMode.POP, 0, 5_000);
            }
            admin.shutdown();
            consumer.setClientRebalance(false);
        }
        consumer.start();
        counter.await(expected, seconds);
        report(kind, counter.count(), counter.seconds(), Math.max(0, expected - counter.count()));
        consumer.shutdown();
    }

    static void run(String[] args) throws Exception {
        switch (args[2]) {
            case "transaction" -> transaction(args[0], args[1], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            case "delay" -> delay(args[0], args[1], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            case "fill" -> fill(args[0], args[1], Long.parseLong(args[3]));
            default -> drain(args[0], args[1], args[2], Long.parseLong(args[3]), Integer.parseInt(args[4]));
        }
    }

    public static void main(String[] args) throws Exception {
        run(args);
        System.exit(0);
    }
}
