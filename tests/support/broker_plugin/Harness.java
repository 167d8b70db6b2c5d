package evenlag.broker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import evenlag.core.Audience;
import evenlag.core.Fingerprint;
import evenlag.core.GroupView;
import evenlag.core.Hint;
import evenlag.core.HintCodec;
import evenlag.core.HintException;
import evenlag.core.HintTable;
import evenlag.core.HintWatcher;
import evenlag.core.Journal;
import evenlag.core.LoadPlacement;
import evenlag.core.Loads;
import evenlag.core.Reason;
import evenlag.core.Settings;
import evenlag.core.SigningKeys;
import evenlag.core.place.LoadProblem;
import evenlag.core.place.PlaceByLoad;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
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

    private static HintWatcher watched;
    private static Journal watchedBy;

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
                Optional<String> rack = Optional.ofNullable(member.get("rack").textValue());
                members.put(
                        id,
                        new MemberSubscriptionAndAssignmentImpl(
                                rack, instance, topics, new Assignment(held)));
            }
            SubscriptionType type =
                    subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
            return new Problem(new GroupSpecImpl(members, type, inverted), new Topics(counts));
        }
    }

    /** The cluster's topics. */
    record Topics(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
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
            case "decode_loads" -> decodeLoads(question);
            case "place" -> place(question);
            case "place_group" -> placeGroup(question);
            case "verdicts" -> verdicts(question);
            case "assign" -> assign(question);
            case "settings" -> settings(question);
            case "watch" -> watch(question);
            case "jmx" -> jmx(question.get("port").asInt());
            case "bench" -> Bench.run(question);
            case "like_uniform" -> likeUniform(question);
            case "storm" -> storm(question);
            case "heap" -> heap(question);
            case "flood" -> flood(question);
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
            Hint hint = HintCodec.decode(question.get("group").asText(), value, keys(question), clusterId);
            Map<String, Object> answer = new HashMap<>();
            answer.put("reason", hint.isReadable() ? null : Reason.NEWER_FORMAT.name());
            answer.put("plan_id", hint.planId());
            answer.put("sequence", hint.sequence());
            answer.put("member_ids", hint.memberIds());
            answer.put("assignment", writeShares(hint));
            return answer;
        } catch (HintException error) {
            return Map.of("reason", error.reason.name(), "message", error.getMessage());
        }
    }

    private static Map<String, Object> decodeLoads(JsonNode question) {
        try {
            byte[] value = bytes(question.get("value"));
            String clusterId = question.get("cluster_id").textValue();
            Loads loads =
                    HintCodec.decodeLoads(question.get("group").asText(), value, keys(question), clusterId);
            Map<String, Object> answer = new HashMap<>();
            answer.put("digest", loads.digest());
            answer.put("measured_at_ms", loads.measuredAtMs());
            answer.put("valid_until_ms", loads.validUntilMs());
            answer.put("limits", List.of(loads.countSlack(), loads.maxMoves(), loads.defaultCapacity()));
            answer.put("capacities", loads.capacities());
            answer.put("member_ids", loads.memberIds());
            Map<String, Object> written = new TreeMap<>();
            Loads present = question.has("at_ms") ? loads.at(question.get("at_ms").asLong()) : loads;
            present.loads().forEach((topic, values) -> written.put(topic.toString(), values));
            answer.put("loads", written);
            return answer;
        } catch (HintException error) {
            return Map.of("reason", error.reason.name(), "message", error.getMessage());
        }
    }

    /** Decodes many values: the identity of each that is accepted, the reason for each that is not. */
    private static Map<String, Object> verdicts(JsonNode question) {
        String group = question.get("group").asText();
        String clusterId = question.get("cluster_id").textValue();
        SigningKeys keys = keys(question);
        List<String> answers = new ArrayList<>();
        for (JsonNode item : question.get("values")) {
            boolean isSigned = item.get(1).asBoolean();
            byte[] value = bytes(item.get(2));
            SigningKeys trusted = isSigned ? keys : SigningKeys.NONE;
            try {
                if (item.get(0).asText().equals("loads")) {
                    answers.add(HintCodec.decodeLoads(group, value, trusted, clusterId).digest());
                } else {
                    Hint hint = HintCodec.decode(group, value, trusted, clusterId);
                    answers.add(hint.isReadable() ? hint.planId() : Reason.NEWER_FORMAT.name());
                }
            } catch (HintException error) {
                answers.add(error.reason.name());
            }
        }
        return Map.of("verdicts", answers);
    }

    /** Places a group as the coordinator hands it in, once, by a record of loads. */
    private static Map<String, Object> placeGroup(JsonNode question) throws HintException {
        Problem problem = Problem.of(question);
        Loads loads = HintCodec.decodeLoads(
                question.get("group").asText(), bytes(question.get("loads")), SigningKeys.NONE, null);
        GroupView group = BrokerGroup.of(problem.spec, problem.describer, null);
        LoadPlacement.Placed placed = LoadPlacement.place(group, loads, 0);
        Map<String, Object> members = new TreeMap<>();
        for (int i = 0; i < group.memberIds().size(); i++) {
            Map<String, Object> topics = new TreeMap<>();
            placed.members().get(i).forEach((id, held) -> topics.put(id.toString(), new TreeSet<>(held)));
            members.put(group.memberIds().get(i), topics);
        }
        return Map.of("assignment", members, "is_uneven", placed.isUneven());
    }

    /** Places groups given in numbers: members are [capacity, [topics]], rows [topic, load, owner]. */
    private static Map<String, Object> place(JsonNode question) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode group : question.get("groups")) {
            int size = group.get("members").size();
            int[] capacities = new int[size];
            int[] classOf = new int[size];
            Map<BitSet, Integer> classes = new LinkedHashMap<>();
            for (int i = 0; i < size; i++) {
                capacities[i] = group.get("members").get(i).get(0).asInt();
                BitSet topics = new BitSet();
                group.get("members").get(i).get(1).forEach(topic -> topics.set(topic.asInt()));
                classOf[i] = classes.computeIfAbsent(topics, set -> classes.size());
            }
            int[] topicOf = new int[group.get("rows").size()];
            long[] loads = new long[topicOf.length];
            int[] owners = new int[topicOf.length];
            for (int row = 0; row < topicOf.length; row++) {
                topicOf[row] = group.get("rows").get(row).get(0).asInt();
                loads[row] = group.get("rows").get(row).get(1).asLong();
                owners[row] = group.get("rows").get(row).get(2).asInt();
            }
            // Of this thread: other work on the machine does not count.
            long started = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            PlaceByLoad.Placement placed = PlaceByLoad.place(new LoadProblem(
                    capacities, classOf, classes.keySet().toArray(BitSet[]::new),
                    group.get("num_topics").asInt(), topicOf, loads, owners, group.get("slack").asInt(),
                    group.get("max_moves").asInt(), null));
            long elapsed = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - started;
            answers.add(Map.of("target", placed.target(), "is_uneven", placed.isUneven(), "ns", elapsed));
        }
        return Map.of("placed", answers);
    }

    private static Map<String, Object> assign(JsonNode question) {
        Journal journal = EvenlagAssignor.newJournal();
        Problem problem = Problem.of(question);
        HintTable table = table(question, journal);
        JsonNode topic = question.get("hint_topic");
        Uuid hintTopic = topic.isNull() ? null : Uuid.fromString(topic.asText());
        boolean isBroken = question.get("broken").asBoolean();
        Decider decider = new Decider(
                () -> new HintWatcher.Knowledge(table, hintTopic),
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
        answer.put("counts", counts(journal));
        answer.put("held", table == null ? 0 : table.numHeld());
        answer.put("loads", table == null ? 0 : table.numLoads());
        answer.put("bytes", table == null ? 0 : table.bytes());
        return answer;
    }

    /** Fills a table, and measures how much more of the heap is used with it. */
    private static Map<String, Object> heap(JsonNode question) {
        Journal journal = EvenlagAssignor.newJournal();
        List<byte[][]> records = new ArrayList<>();
        for (JsonNode record : question.get("records")) {
            records.add(new byte[][] {bytes(record.get(1)), bytes(record.get(2))});
        }
        long before = usedBytes();
        HintTable table = new HintTable(
                1, Audience.broker(), SigningKeys.NONE, null, question.get("max_bytes").asLong(), journal);
        long now = question.get("now_ms").asLong();
        records.forEach(each -> table.apply(0, each[0], each[1], now));
        table.finishReading(null);
        long used = usedBytes() - before;
        return Map.of(
                "used", used, "counted", table.bytes(), "held", table.numHeld(), "loads", table.numLoads(),
                "default", BrokerSettings.of(Map.of("listeners", "PLAINTEXT://localhost:9092")).maxBytes());
    }

    /** Notes malformed records of many groups, and one hint: what is logged. */
    private static Map<String, Object> flood(JsonNode question) {
        PrintStream before = System.err;
        ByteArrayOutputStream logged = new ByteArrayOutputStream();
        System.setErr(new PrintStream(logged, true, StandardCharsets.UTF_8));
        Journal journal = new Journal("evenlag.flood", "nothing");
        try {
            for (int i = 0; i < question.get("records").asInt(); i++) {
                journal.note(Reason.MALFORMED, "group-" + i, null, "no record");
            }
            journal.note(Reason.RECEIVED, "group", "plan", "sequence 1");
        } finally {
            System.setErr(before);
        }
        return Map.of(
                "counted", journal.count(Reason.MALFORMED),
                "lines", logged.toString(StandardCharsets.UTF_8).lines().toList());
    }

    private static long usedBytes() {
        for (int i = 0; i < 3; i++) {
            System.gc();
        }
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static Map<String, Long> counts(Journal journal) {
        Map<String, Long> counts = new TreeMap<>();
        for (Reason reason : Reason.values()) {
            if (journal.count(reason) > 0) {
                counts.put(reason.name(), journal.count(reason));
            }
        }
        return counts;
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
                            Audience.broker(),
                            keys(question),
                            question.get("cluster_id").textValue(),
                            question.get("max_bytes").asLong(),
                            journal);
                    apply(table, step, question.get("now_ms").asLong());
                    table.finishReading(before);
                }
                case "apply" -> apply(table, step, question.get("now_ms").asLong());
                case "promote" -> table.promote(question.get("now_ms").asLong());
                case "forget" -> table = table.forget();
                default -> throw new IllegalArgumentException("no such step");
            }
        }
        return table;
    }

    private static void apply(HintTable table, JsonNode step, long nowMs) {
        long now = step.has("now_ms") ? step.get("now_ms").asLong() : nowMs;
        for (JsonNode record : step.get("records")) {
            table.apply(record.get(0).asInt(), bytes(record.get(1)), bytes(record.get(2)), now);
        }
    }

    /** Many threads ask about one group while its hints come and go: the answers, each once. */
    private static Map<String, Object> storm(JsonNode question) throws InterruptedException {
        Journal journal = EvenlagAssignor.newJournal();
        Problem problem = Problem.of(question);
        HintTable table = table(question, journal);
        Decider decider = new Decider(
                () -> new HintWatcher.Knowledge(table, null), new UniformAssignor(), journal,
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
            apply(table, question.get("storm"), question.get("now_ms").asLong());
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

    private static Map<String, Object> likeUniform(JsonNode question) {
        Journal journal = EvenlagAssignor.newJournal();
        JsonNode topic = question.get("hint_topic");
        Uuid hintTopic = topic.isNull() ? null : Uuid.fromString(topic.asText());
        return LikeUniform.run(question, table(question, journal), hintTopic, journal);
    }

    private static Map<String, Object> settings(JsonNode question) {
        Map<String, Object> configs = new HashMap<>();
        question.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        Settings settings = BrokerSettings.of(configs);
        return Map.of(
                "topic", settings.topic(), "client", settings.client(), "text", settings.toString(),
                "key_files", settings.keyFiles().stream().map(Object::toString).toList(),
                "max_bytes", settings.maxBytes());
    }

    /** Reads a hint topic, and waits until so many events of a kind have happened. */
    private static Map<String, Object> watch(JsonNode question) throws InterruptedException {
        Map<String, Object> configs = new HashMap<>();
        question.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        Journal journal = watched == null ? EvenlagAssignor.newJournal() : watchedBy;
        if (watched == null) {
            watchedBy = journal;
            watched = new HintWatcher(BrokerSettings.of(configs), Audience::broker, journal);
            watched.start();
        }
        Reason reason = Reason.valueOf(question.get("reason").asText());
        long deadline = System.nanoTime() + 600_000_000_000L;
        while (journal.count(reason) < question.get("count").asLong() && System.nanoTime() - deadline < 0) {
            Thread.sleep(20);
        }
        Thread.sleep(100); // an event is counted just before the table has changed
        HintTable table = watched.knowledge().table();
        Map<String, Object> answer = new TreeMap<>();
        answer.put("held", table == null ? -1 : table.numHeld());
        answer.put("counts", counts(journal));
        return answer;
    }

    private static Map<String, Object> jmx(int port) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + port + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName(EvenlagAssignor.METRICS);
            Map<String, Object> answer = new TreeMap<>();
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                answer.put(attribute.getName(), server.getAttribute(name, attribute.getName()));
            }
            return answer;
        }
    }

    private static Map<String, Object> write(Map<String, MemberAssignment> members) {
        Map<String, Object> written = new TreeMap<>();
        members.forEach((memberId, member) -> written.put(memberId, write(member)));
        return written;
    }

    private static Map<String, Object> writeShares(Hint hint) {
        Map<String, Object> written = new TreeMap<>();
        hint.shares().forEach((key, share) -> written.put(key, write(share::partitions)));
        return written;
    }

    private static Map<String, Object> write(MemberAssignment member) {
        Map<String, Object> topics = new TreeMap<>();
        member.partitions().forEach((id, held) -> topics.put(id.toString(), new TreeSet<>(held)));
        return topics;
    }

    private static SigningKeys keys(JsonNode question) {
        List<byte[]> keys = new ArrayList<>();
        question.get("master_keys").forEach(key -> keys.add(key.asText().getBytes(StandardCharsets.UTF_8)));
        return SigningKeys.ofMasters(keys);
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }
}
