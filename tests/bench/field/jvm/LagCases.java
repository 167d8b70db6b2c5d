package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;

/**
 * What {@link LagAssignor} does with lags, for tests.
 *
 * <p>Standard input is a list of cases, each with a number of members and the lag of each partition; standard output
 * a list with the member of each partition.
 */
public final class LagCases {
    private static final ObjectMapper JSON = new ObjectMapper();

    private LagCases() {}

    public static void main(String[] arguments) throws IOException {
        List<int[]> owners = new ArrayList<>();
        for (JsonNode each : JSON.readTree(System.in)) {
            owners.add(owners(each.get("members").asInt(), each.get("lags")));
        }
        System.out.println(JSON.writeValueAsString(owners));
    }

    private static int[] owners(int numMembers, JsonNode lagNodes) {
        Map<TopicPartition, Long> lags = new HashMap<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode lag : lagNodes) {
            TopicPartition partition = new TopicPartition("t", partitions.size());
            partitions.add(partition);
            lags.put(partition, lag.asLong());
        }
        Map<String, LagAssignor.Assigned> members = new TreeMap<>();
        for (int number = 0; number < numMembers; number++) {
            members.put(String.format("member-%04d", number), new LagAssignor.Assigned());
        }
        LagAssignor.assign(members, partitions, lags);
        int[] owners = new int[partitions.size()];
        int number = 0;
        for (LagAssignor.Assigned member : members.values()) {
            for (TopicPartition each : member.partitions()) {
                owners[each.partition()] = number;
            }
            number++;
        }
        return owners;
    }
}
