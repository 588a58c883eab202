import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers and consumers of the official Java client, driven line by line.
 *
 *   Actor NAMESRV
 *
 * Lines of standard input (words separated by tabs, see Lines), each answered by one JSON line:
 *   producer GROUP                                 start a producer
 *   send GROUP TOPIC COUNT BODY TAG KEY            send COUNT messages; body, tag and key get -0, -1, ... ("" for no tag or key)
 *   consumer GROUP TOPIC EXPRESSION                start a push consumer from the first offset
 *   received GROUP                                 what that consumer got since the last call
 *   stop GROUP                                     shut that producer or consumer down
 * The end of standard input stops all of them.
 */
public final class Actor {
    private final String namesrv;
    /** A stall of a busy machine is no failure of what is tested. */
    private static final int LIMIT_MS = 30_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, Queue<String>> received = new HashMap<>();

    private Actor(String namesrv) {
        this.namesrv = namesrv;
    }

    private String producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(LIMIT_MS);
        producer.setMqClientApiTimeout(LIMIT_MS);
        producer.setHeartbeatBrokerInterval(3_000);
        producer.start();
        producers.put(group, producer);
        return "{\"ok\":true}";
    }

    private String send(List<String> words) throws Exception {
        StringBuilder out = new StringBuilder("{\"sent\":[");
        for (int i = 0; i < Integer.parseInt(words.get(3)); i++) {
            Message message = new Message(words.get(2), (words.get(4) + "-" + i).getBytes(StandardCharsets.UTF_8));
            if (!words.get(5).isEmpty()) {
                message.setTags(words.get(5) + "-" + i);
            }
            if (!words.get(6).isEmpty()) {
                message.setKeys(words.get(6) + "-" + i);
            }
            SendResult result = producers.get(words.get(1)).send(message);
            out.append(i == 0 ? "" : ",").append("{\"status\":").append(Lines.quote(result.getSendStatus().name()))
                .append(",\"msgId\":").append(Lines.quote(result.getMsgId()))
                .append(",\"offsetMsgId\":").append(Lines.quote(result.getOffsetMsgId()))
                .append(",\"brokerName\":").append(Lines.quote(result.getMessageQueue().getBrokerName()))
                .append(",\"queueId\":").append(result.getMessageQueue().getQueueId())
                .append(",\"queueOffset\":").append(result.getQueueOffset()).append('}');
        }
        return out.append("]}").toString();
    }

    private String consumer(String group, String topic, String expression) throws Exception {
        Queue<String> queue = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setVipChannelEnabled(false);
        consumer.setMqClientApiTimeout(LIMIT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                queue.add("{\"msgId\":" + Lines.quote(message.getMsgId())
                    + ",\"body\":" + Lines.quote(new String(message.getBody(), StandardCharsets.UTF_8))
                    + ",\"tags\":" + Lines.quote(message.getTags()) + ",\"keys\":" + Lines.quote(message.getKeys())
                    + ",\"queueId\":" + message.getQueueId() + ",\"queueOffset\":" + message.getQueueOffset()
                    + ",\"reconsumeTimes\":" + message.getReconsumeTimes() + "}");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(group, consumer);
        received.put(group, queue);
        return "{\"ok\":true,\"clientId\":"
            + Lines.quote(consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId()) + "}";
    }

    private String received(String group) {
        StringBuilder out = new StringBuilder("{\"received\":[");
        Queue<String> queue = received.get(group);
        for (String message = queue.poll(), comma = ""; message != null; message = queue.poll(), comma = ",") {
            out.append(comma).append(message);
        }
        return out.append("]}").toString();
    }

    private String stop(String group) {
        DefaultMQProducer producer = producers.remove(group);
        if (producer != null) {
            producer.shutdown();
        }
        DefaultMQPushConsumer consumer = consumers.remove(group);
        if (consumer != null) {
            consumer.shutdown();
        }
        return "{\"ok\":" + (producer != null || consumer != null) + "}";
    }

    private String answer(List<String> words) {
        try {
            switch (words.get(0)) {
                case "producer": return producer(words.get(1));
                case "send": return send(words);
                case "consumer": return consumer(words.get(1), words.get(2), words.get(3));
                case "received": return received(words.get(1));
                case "stop": return stop(words.get(1));
                default: return "{\"error\":\"unknown verb\"}";
            }
        } catch (Exception error) {
            return "{\"error\":" + Lines.quote(error.toString()) + "}";
        }
    }

    public static void main(String[] args) throws Exception {
        Lines.hastenShutdowns();
        Actor actor = new Actor(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(actor.answer(Lines.words(line)));
            System.out.flush();
        }
        actor.producers.values().forEach(DefaultMQProducer::shutdown);
        actor.consumers.values().forEach(DefaultMQPushConsumer::shutdown);
        System.exit(0);
    }
}
