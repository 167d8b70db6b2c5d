package evenlag.broker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Answers questions about the plug-in: a JSON object a line on standard input, another one back. */
public final class Harness {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Harness() {}

    /** A group as the coordinator hands it in, by Kafka's own classes. */
    private record Problem(GroupSpec spec, SubscribedTopicDescriber describer) {
        static Problem of(JsonNode question) {
            Map<Uuid, Integer> counts = new HashMap<>();
            question.get("topics")
                    .properties()
                    .forEach(e -> counts.put(Uuid.fromString(e.getKey()), e.getValue().asInt()));
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
            Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
            Set<Set<Uuid>> subscriptions = new HashSet<>();
            for (JsonNode member : question.get("members")) {
                String id = member.get("id").asText();
                Set<Uuid> topics = new LinkedHashSet<>();
                member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
                subscriptions.add(topics);
                Map<Uuid, Set<Integer>> held = new HashMap<>();
                member.get("held").properties().forEach(e -> {
                    Uuid topic = Uuid.fromString(e.getKey());
                    e.getValue().forEach(n -> {
                        held.computeIfAbsent(topic, t -> new HashSet<>()).add(n.asInt());
                        inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(n.asInt(), id);
                    });
                });
                Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
                members.put(
                        id,
                        new MemberSubscriptionAndAssignmentImpl(
                                Optional.empty(), instance, topics, new Assignment(held)));
            }
            SubscriptionType type =
                    subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
            return new Problem(new GroupSpecImpl(members, type, inverted), new Topics(counts));
        }
    }

    private record Topics(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return counts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }

    /** Kafka's assignor on a bad day. */
    private static final class Broken implements ConsumerGroupPartitionAssignor {
        @Override
        public String name() {
            return "broken";
        }

        @Override
        public GroupAssignment assign(GroupSpec spec, SubscribedTopicDescriber describer) {
            throw new StackOverflowError("made for a test");
        }
    }

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
            case "fingerprint" -> fingerprint(question);
            case "decode" -> decode(question);
            case "assign" -> assign(question);
            case "settings" -> settings(question);
            case "jmx" -> jmx(question.get("port").asInt());
            case "bench" -> Bench.run(question);
            case "storm" -> storm(question);
            default -> throw new IllegalArgumentException("no such question");
        };
    }

    private static Map<String, Object> fingerprint(JsonNode question) {
        List<String> keys = new ArrayList<>();
        List<Set<Uuid>> subscriptions = new ArrayList<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (JsonNode member : question.get("members")) {
            keys.add(member.get(0).asText());
            Set<Uuid> topics = new HashSet<>();
            member.get(1).forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            subscriptions.add(topics);
        }
        question.get("topics").properties().forEach(e -> {
            Uuid topic = Uuid.fromString(e.getKey());
            if (e.getValue().asInt() > 0 && subscriptions.stream().anyMatch(set -> set.contains(topic))) {
                counts.put(topic, e.getValue().asInt());
            }
        });
        boolean isHomogeneous = new HashSet<>(subscriptions).size() == 1;
        return Map.of("sha256", Fingerprint.of(keys, subscriptions, counts, isHomogeneous));
    }

    private static Map<String, Object> decode(JsonNode question) {
        try {
            byte[] value = bytes(question.get("value"));
            // Too long for a line: the rest of it is zeros.
            value = Arrays.copyOf(value, Math.max(value.length, question.get("length").asInt()));
            String clusterId = question.get("cluster_id").textValue();
            Hint hint = HintCodec.decode(bytes(question.get("key")), value, keys(question), clusterId);
            Map<String, Object> answer = new HashMap<>();
            answer.put("plan_id", hint.planId());
            answer.put("sequence", hint.sequence());
            answer.put("member_ids", hint.memberIds());
            answer.put("assignment", write(hint.shares()));
            return answer;
        } catch (HintException error) {
            return Map.of("reason", error.reason.name(), "message", error.getMessage());
        }
    }

    private static Map<String, Object> assign(JsonNode question) {
        Journal journal = new Journal();
        Problem problem = Problem.of(question);
        HintTable table = table(question, journal);
        JsonNode topic = question.get("hint_topic");
        Uuid hintTopic = topic.isNull() ? null : Uuid.fromString(topic.asText());
        boolean isBroken = question.get("broken").asBoolean();
        Decider decider = new Decider(
                () -> new Decider.Knowledge(table, hintTopic),
                isBroken ? new Broken() : new UniformAssignor(),
                journal,
                () -> question.get("now_ms").asLong(),
                new AtomicLong());
        Map<String, Object> answer = new HashMap<>();
        answer.put("assignment", write(decider.assign(problem.spec, problem.describer).members()));
        if (!isBroken) {
            GroupAssignment plain = new UniformAssignor().assign(problem.spec, problem.describer);
            answer.put("uniform", write(plain.members()));
        }
        Map<String, Long> counts = new TreeMap<>();
        for (Reason reason : Reason.values()) {
            if (journal.count(reason) > 0) {
                counts.put(reason.name(), journal.count(reason));
            }
        }
        answer.put("counts", counts);
        answer.put("held", table == null ? 0 : table.numHeld());
        answer.put("bytes", table == null ? 0 : table.bytes());
        return answer;
    }

    /** Plays what happened to the hint topic; without anything, nobody knows yet. */
    private static HintTable table(JsonNode question, Journal journal) {
        HintTable table = null;
        for (JsonNode step : question.get("steps")) {
            switch (step.get("do").asText()) {
                case "read" -> {
                    HintTable before = table;
                    table = new HintTable(
                            question.get("num_partitions").asInt(),
                            keys(question),
                            question.get("cluster_id").textValue(),
                            question.get("max_bytes").asLong(),
                            journal);
                    apply(table, step);
                    table.finishReading(before);
                }
                case "apply" -> apply(table, step);
                case "forget" -> table = table.forget();
                default -> throw new IllegalArgumentException("no such step");
            }
        }
        return table;
    }

    private static void apply(HintTable table, JsonNode step) {
        for (JsonNode record : step.get("records")) {
            table.apply(record.get(0).asInt(), bytes(record.get(1)), bytes(record.get(2)));
        }
    }

    /** Many threads ask about one group while its hints come and go: the answers, each once. */
    private static Map<String, Object> storm(JsonNode question) throws InterruptedException {
        Journal journal = new Journal();
        Problem problem = Problem.of(question);
        HintTable table = table(question, journal);
        Decider decider = new Decider(
                () -> new Decider.Knowledge(table, null), new UniformAssignor(), journal,
                () -> question.get("now_ms").asLong(), new AtomicLong());
        Set<Map<String, Object>> answers = ConcurrentHashMap.newKeySet();
        int asks = question.get("asks").asInt();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < question.get("threads").asInt(); i++) {
            threads.add(new Thread(() -> {
                for (int ask = 0; ask < asks; ask++) {
                    answers.add(write(decider.assign(problem.spec, problem.describer).members()));
                }
            }));
        }
        threads.forEach(Thread::start);
        long written = 0;
        while (threads.stream().anyMatch(Thread::isAlive)) {
            apply(table, question.get("storm"));
            written++;
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return Map.of(
                "answers", List.copyOf(answers), "written", written,
                "followed", journal.count(Reason.FOLLOWED), "no_hint", journal.count(Reason.NO_HINT),
                "errors", journal.count(Reason.INTERNAL_ERROR));
    }

    private static Map<String, Object> settings(JsonNode question) {
        Map<String, Object> configs = new HashMap<>();
        question.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        Settings settings = Settings.of(configs);
        return Map.of(
                "topic", settings.topic(), "client", settings.client(), "text", settings.toString(),
                "key_files", settings.keyFiles().stream().map(Object::toString).toList(),
                "max_bytes", settings.maxBytes());
    }

    private static Map<String, Object> jmx(int port) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + port + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName(Metrics.NAME);
            Map<String, Object> answer = new TreeMap<>();
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                answer.put(attribute.getName(), server.getAttribute(name, attribute.getName()));
            }
            return answer;
        }
    }

    private static Map<String, Object> write(Map<String, ? extends MemberAssignment> members) {
        Map<String, Object> written = new TreeMap<>();
        members.forEach((memberId, member) -> {
            Map<String, Object> topics = new TreeMap<>();
            member.partitions().forEach((id, held) -> topics.put(id.toString(), new TreeSet<>(held)));
            written.put(memberId, topics);
        });
        return written;
    }

    private static List<byte[]> keys(JsonNode question) {
        List<byte[]> keys = new ArrayList<>();
        question.get("master_keys").forEach(key -> keys.add(key.asText().getBytes(StandardCharsets.UTF_8)));
        return keys;
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }
}
