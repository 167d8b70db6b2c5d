import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads assignment problems, gives them to Kafka's own assignors, and prints what they answer.
 *
 * A problem is lines of fields between tabs, "-" for none:
 *   P  assignor  runs  print(0/1)
 *   T  topic  partitions                      (one a topic)
 *   R  topic  partition  rack,rack            (optional)
 *   L  topic  lag,lag                         (for lag-heap only)
 *   M  member  instance  rack  generation  topic,topic  topic:first+number,number;topic:...
 *   E
 * The answer is "S" and the nanoseconds of each run's call of assign, then "A member topic:partition,..." for
 * each member if asked for, then "E".
 */
public final class Oracle {
    /** Kafka's sticky algorithm without the withholding that its cooperative assignor adds. */
    public static final class Target extends AbstractStickyAssignor {
        @Override
        public String name() {
            return "sticky-target";
        }

        @Override
        public MemberData memberData(Subscription subscription) {
            return new MemberData(
                subscription.ownedPartitions(), subscription.generationId(), subscription.rackId());
        }
    }

    private static final class MemberLine {
        String id;
        String instance;
        String rack;
        int generation;
        List<String> topics;
        List<TopicPartition> owned = new ArrayList<>();

        Subscription subscription() {
            Subscription made = new Subscription(
                topics, null, new ArrayList<>(owned), generation, Optional.ofNullable(rack));
            made.setGroupInstanceId(Optional.ofNullable(instance));
            return made;
        }
    }

    private final Map<String, Integer> topics = new TreeMap<>();
    private final Map<TopicPartition, String[]> racks = new HashMap<>();
    private final Map<String, long[]> lags = new HashMap<>();
    private final List<MemberLine> members = new ArrayList<>();

    private static String orNull(String field) {
        return field.equals("-") ? null : field;
    }

    private void read(String[] f) {
        switch (f[0]) {
            case "T" -> topics.put(f[1], Integer.parseInt(f[2]));
            case "R" -> racks.put(new TopicPartition(f[1], Integer.parseInt(f[2])), f[3].split(","));
            case "L" -> lags.put(f[1], Arrays.stream(f[2].split(",")).mapToLong(Long::parseLong).toArray());
            case "M" -> members.add(readMember(f));
            default -> throw new IllegalArgumentException(f[0]);
        }
    }

    private static MemberLine readMember(String[] f) {
        MemberLine member = new MemberLine();
        member.id = f[1];
        member.instance = orNull(f[2]);
        member.rack = orNull(f[3]);
        member.generation = Integer.parseInt(f[4]);
        member.topics = f[5].equals("-") ? List.of() : Arrays.asList(f[5].split(","));
        if (!f[6].equals("-")) {
            for (String held : f[6].split(";")) {
                int colon = held.lastIndexOf(':');
                for (String number : held.substring(colon + 1).split(",")) {
                    member.owned.add(new TopicPartition(held.substring(0, colon), Integer.parseInt(number)));
                }
            }
        }
        return member;
    }

    private Cluster cluster() {
        Map<String, Node> nodes = new LinkedHashMap<>();
        Node plain = new Node(0, "h", 1);
        List<PartitionInfo> infos = new ArrayList<>();
        for (Map.Entry<String, Integer> topic : topics.entrySet()) {
            for (int p = 0; p < topic.getValue(); p++) {
                String[] held = racks.get(new TopicPartition(topic.getKey(), p));
                Node[] replicas = {plain};
                if (held != null) {
                    replicas = Arrays.stream(held)
                        .map(r -> nodes.computeIfAbsent(r, n -> new Node(nodes.size() + 1, "h", 1, n)))
                        .toArray(Node[]::new);
                }
                infos.add(new PartitionInfo(topic.getKey(), p, replicas[0], replicas, replicas));
            }
        }
        List<Node> all = new ArrayList<>(nodes.values());
        all.add(plain);
        return new Cluster("c", all, infos, Collections.emptySet(), Collections.emptySet());
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            case "sticky-target" -> new Target();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private void solve(String name, int runs, boolean print, PrintStream out) {
        if (name.equals("lag-heap")) {
            solveByHeap(runs, out);
            return;
        }
        Cluster cluster = cluster();
        List<Long> times = new ArrayList<>();
        Map<String, Assignment> answer = Map.of();
        for (int run = 0; run < runs; run++) {
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (MemberLine member : members) {
                subscriptions.put(member.id, member.subscription());
            }
            ConsumerPartitionAssignor assignor = assignor(name);
            long start = System.nanoTime();
            answer = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
            times.add(System.nanoTime() - start);
            report(times, out);
        }
        if (print) {
            for (Map.Entry<String, Assignment> entry : new TreeMap<>(answer).entrySet()) {
                StringBuilder line = new StringBuilder("A\t").append(entry.getKey()).append('\t');
                for (TopicPartition tp : entry.getValue().partitions()) {
                    line.append(tp.topic()).append(':').append(tp.partition()).append(',');
                }
                out.println(line);
            }
        }
        out.println("E");
    }

    /** KIP-169's rule, one partition at a time from a heap: what one would write in Java. */
    private void solveByHeap(int runs, PrintStream out) {
        Map<String, List<Integer>> takers = new HashMap<>();
        for (int m = 0; m < members.size(); m++) {
            for (String topic : members.get(m).topics) {
                takers.computeIfAbsent(topic, t -> new ArrayList<>()).add(m);
            }
        }
        List<Long> times = new ArrayList<>();
        for (int run = 0; run < runs; run++) {
            long start = System.nanoTime();
            long check = 0;
            for (String topic : topics.keySet()) {
                check += spread(lags.get(topic), takers.get(topic));
            }
            times.add(System.nanoTime() - start);
            if (check < 0) {
                throw new IllegalStateException();
            }
            report(times, out);
        }
        out.println("E");
    }

    private static long spread(long[] lag, List<Integer> takers) {
        Integer[] order = new Integer[lag.length];
        Arrays.setAll(order, i -> i);
        Arrays.sort(order, (a, b) -> lag[a] != lag[b] ? Long.compare(lag[b], lag[a]) : Integer.compare(a, b));
        PriorityQueue<long[]> heap = new PriorityQueue<>((a, b) -> {
            int byCount = Long.compare(a[0], b[0]);
            int byLag = byCount != 0 ? byCount : Long.compare(a[1], b[1]);
            return byLag != 0 ? byLag : Long.compare(a[2], b[2]);
        });
        for (int taker : takers) {
            heap.add(new long[] {0, 0, taker});
        }
        int[] chosen = new int[lag.length];
        for (int partition : order) {
            long[] member = heap.poll();
            chosen[partition] = (int) member[2];
            member[0]++;
            member[1] += lag[partition];
            heap.add(member);
        }
        return chosen.length;
    }

    /** Says the time of the last run at once: who waits may not wait for them all. */
    private static void report(List<Long> times, PrintStream out) {
        out.println("S\t" + times.get(times.size() - 1));
        out.flush();
    }

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        Oracle problem = null;
        String[] head = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split("\t");
            if (f[0].equals("P")) {
                head = f;
                problem = new Oracle();
            } else if (f[0].equals("E")) {
                problem.solve(head[1], Integer.parseInt(head[2]), head[3].equals("1"), out);
                out.flush();
            } else {
                problem.read(f);
            }
        }
    }
}
