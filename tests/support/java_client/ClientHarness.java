package evenlag.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import evenlag.core.Audience;
import evenlag.core.HintTable;
import evenlag.core.Journal;
import evenlag.core.Settings;
import evenlag.core.SigningKeys;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/** Answers questions about the client: a JSON object a line on standard input, another one back. */
public final class ClientHarness {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Leaders that assign more than once, by name. */
    private static final Map<String, EvenlagAssignor> LEADERS = new HashMap<>();
    private static final Map<String, Cluster> CLUSTERS = new HashMap<>();

    /** Assignors that somebody still needs. */
    private static final List<EvenlagAssignor> KEPT = new ArrayList<>();

    private ClientHarness() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Exception error) {
                answer = Map.of("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Map<String, Object> answer(JsonNode question) throws Exception {
        return switch (question.get("op").asText()) {
            case "assign" -> {
                List<Object> answers = new ArrayList<>();
                question.get("groups").forEach(group -> answers.add(assign(group)));
                yield Map.of("groups", answers);
            }
            case "bench" -> AssignBench.run(question);
            case "settings" -> settings(question);
            case "watchers" -> watchers();
            case "join" -> join(question);
            case "forget" -> {
                KEPT.clear();
                yield Map.of();
            }
            case "start" -> Consumers.start(question);
            case "stop" -> Consumers.stop(question);
            case "rebalance" -> Consumers.rebalance(question);
            case "counts" -> counts(question);
            case "look" -> Consumers.look();
            case "journal" -> Consumers.journal(question);
            default -> throw new IllegalArgumentException("no such question");
        };
    }

    /** Lets a new assignor, or that of a leader known by name, assign a group whose members sent these bytes. */
    private static Map<String, Object> assign(JsonNode group) {
        Cluster cluster = cluster(group);
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : group.get("members")) {
            ByteBuffer sent = ByteBuffer.wrap(bytes(member.get("sent")));
            Subscription subscription = ConsumerProtocol.deserializeSubscription(sent);
            subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance").textValue()));
            members.put(member.get("id").asText(), subscription);
        }
        String name = group.path("leader").textValue();
        EvenlagAssignor assignor = name == null
                ? leader(group)
                : LEADERS.computeIfAbsent(name, same -> leader(group));
        Map<String, Object> assigned = new TreeMap<>();
        Map<String, Assignment> given =
                assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        given.forEach((memberId, assignment) -> assigned.put(memberId, pairs(assignment.partitions())));
        Map<String, Object> answer = new HashMap<>();
        answer.put("assigned", assigned);
        Decision decision = assignor.lastDecision();
        if (decision != null) {
            answer.put("target", decision.target());
            answer.put("reason", decision.reason().name());
            answer.put("hint_reason", decision.hintReason().name());
            answer.put("plan_id", decision.planId());
        }
        return answer;
    }

    private static EvenlagAssignor leader(JsonNode group) {
        HintTable table = table(group);
        long now = group.get("now_ms").asLong();
        return new EvenlagAssignor(group.get("group").asText(), () -> table, () -> now);
    }

    /** Returns the same object for the same name: metadata that were not read again. */
    private static Cluster cluster(JsonNode group) {
        String name = group.path("metadata").textValue();
        if (name != null && CLUSTERS.containsKey(name)) {
            return CLUSTERS.get(name);
        }
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Uuid> ids = new HashMap<>();
        for (JsonNode topic : group.get("topics")) {
            String topicName = topic.get(0).asText();
            for (int number = 0; number < topic.get(1).asInt(); number++) {
                partitions.add(new PartitionInfo(topicName, number, null, new Node[0], new Node[0]));
            }
            if (!topic.get(2).isNull()) {
                ids.put(topicName, Uuid.fromString(topic.get(2).asText()));
            }
        }
        Cluster cluster =
                new Cluster("c", List.of(), partitions, Set.of(), Set.of(), Set.of(), null, ids);
        if (name != null) {
            CLUSTERS.put(name, cluster);
        }
        return cluster;
    }

    private static HintTable table(JsonNode group) {
        if (group.get("records").isNull()) {
            return null;
        }
        String groupId = group.get("group").asText();
        List<byte[]> keys = new ArrayList<>();
        group.path("keys").forEach(key -> keys.add(bytes(key)));
        HintTable table = new HintTable(
                1, Audience.consumersOf(Set.of(groupId)), SigningKeys.ofGroup(keys), null, 1L << 40, journal());
        for (JsonNode record : group.get("records")) {
            table.apply(0, bytes(record.get(0)), bytes(record.get(1)), group.get("now_ms").asLong());
        }
        table.finishReading(null);
        return table;
    }

    private static Journal journal() {
        return new Journal("evenlag.client", "everybody keeps what it has");
    }

    private static Map<String, Object> settings(JsonNode question) {
        Settings settings = ClientSettings.of(configs(question));
        return Map.of(
                "topic", settings.topic(), "client", settings.client(), "text", settings.toString(),
                "key_files", settings.keyFiles().stream().map(Object::toString).toList());
    }

    /** Makes an assignor as Kafka does. */
    private static Map<String, Object> join(JsonNode question) {
        EvenlagAssignor assignor = new EvenlagAssignor();
        assignor.configure(configs(question));
        if (question.path("keep").asBoolean()) {
            KEPT.add(assignor);
        }
        return Map.of("watchers", SharedWatcher.count());
    }

    private static Map<String, Object> watchers() {
        System.gc();
        long threads = Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("evenlag-hints"))
                .count();
        return Map.of("watchers", SharedWatcher.count(), "threads", threads);
    }

    /** Returns the numbers of a group's MBean, as an operator sees them. */
    private static Map<String, Object> counts(JsonNode question) throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName(SharedWatcher.METRICS + ObjectName.quote(question.get("group").asText()));
        Map<String, Object> numbers = new TreeMap<>();
        for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
            numbers.put(attribute.getName(), server.getAttribute(name, attribute.getName()));
        }
        return numbers;
    }

    private static Map<String, Object> configs(JsonNode question) {
        Map<String, Object> configs = new HashMap<>();
        question.get("configs").properties().forEach(entry -> {
            JsonNode value = entry.getValue();
            if (value.isArray()) {
                List<String> texts = new ArrayList<>();
                value.forEach(text -> texts.add(text.asText()));
                configs.put(entry.getKey(), texts);
            } else {
                configs.put(entry.getKey(), value.asText());
            }
        });
        return configs;
    }

    private static List<List<Object>> pairs(List<TopicPartition> partitions) {
        List<List<Object>> pairs = new ArrayList<>();
        partitions.forEach(each -> pairs.add(List.of(each.topic(), each.partition())));
        return pairs;
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }
}
