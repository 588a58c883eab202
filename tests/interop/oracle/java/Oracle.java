import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.remoting.protocol.NamespaceUtil;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Answers, line by line, what Apache's own classes make of something. Texts travel as base64. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        StringBuilder out = new StringBuilder();
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            out.append(answer(words)).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "sql":
                return sql(text(words[1]), text(words[2]));
            case "bloom":
                BloomFilter bloom = BloomFilter.createByFn(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                return bloom.getM() + " " + bloom.getK() + " " + Arrays.toString(bloom.calcBitPositions(text(words[3]))).replaceAll("[\\[\\],]", "");
            case "sign":
                return sign(text(words[1]), text(words[2]), text(words[3]), text(words[4]), Base64.getDecoder().decode(words[5]));
            case "namespace":
                return NamespaceUtil.wrapNamespace(text(words[1]), text(words[2])) + " " + NamespaceUtil.withoutNamespace(text(words[2]), text(words[1]));
            case "trace":
                return trace(text(words[1]));
            case "filters":
                return filters(text(words[1]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** E: not an expression. X: evaluating it fails. Otherwise its value. */
    private static String sql(String condition, String properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(condition);
        } catch (Exception e) {
            return "E";
        }
        Map<String, String> map = MessageDecoder.string2messageProperties(properties);
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(map));
            return value == null ? "N" : value == Boolean.TRUE ? "T" : value == Boolean.FALSE ? "F" : "?" + value;
        } catch (Exception e) {
            return "X";
        }
    }

    /** Fields are name=value lines. */
    private static String sign(String accessKey, String secretKey, String token, String fields, byte[] body) {
        RemotingCommand request = RemotingCommand.createRequestCommand(14, null);
        request.setBody(body);
        request.setExtFields(new java.util.HashMap<>());
        for (String line : fields.split("\n")) {
            int at = line.indexOf('=');
            if (at > 0) {
                request.addExtField(line.substring(0, at), line.substring(at + 1));
            }
        }
        SessionCredentials account = new SessionCredentials(accessKey, secretKey);
        if (!token.isEmpty()) {
            account.setSecurityToken(token);
        }
        new AclClientRPCHook(account).doBeforeRequest("a", request);
        return request.getExtFields().get("Signature");
    }

    /** Reads trace records and writes them again. */
    private static String trace(String data) {
        StringBuilder out = new StringBuilder();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(data)) {
            context.setAccessChannel(AccessChannel.LOCAL);
            out.append(TraceDataEncoder.encoderFromContextBean(context).getTransData());
        }
        return Base64.getEncoder().encodeToString(out.toString().getBytes(StandardCharsets.UTF_8));
    }

    /** Reads a consumerFilter.json whose bits are for 64 groups, as this constructor wants them. */
    private static String filters(String json) {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        manager.decode(json);
        StringBuilder out = new StringBuilder();
        manager.getFilterDataByTopic().forEach((topic, groups) -> groups.getGroupFilterData().forEach((group, data) ->
            out.append(topic).append('|').append(group).append('|').append(data.getExpression()).append('|')
                .append(data.getCompiledExpression() != null).append('|').append(data.isDead()).append(';')));
        return out.toString();
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
