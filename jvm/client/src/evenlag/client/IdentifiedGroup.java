package evenlag.client;

import evenlag.core.GroupView;
import evenlag.core.Spans;
import evenlag.core.sticky.Group;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** A group of the classic protocol, with the ids of its topics: as hints and loads name it. */
final class IdentifiedGroup implements GroupView {
    private final Group group;
    private final Uuid[] ids;
    private final List<String> memberIds;
    private final List<String> keys = new ArrayList<>();
    private final List<Set<Uuid>> subscriptions = new ArrayList<>();
    private final Map<Uuid, Integer> topics = new HashMap<>();
    private final List<Map<Uuid, Set<Integer>>> owned = new ArrayList<>();

    private IdentifiedGroup(Group group) {
        this.group = group;
        ids = group.topicIds;
        memberIds = List.of(group.memberIds);
        Map<int[], Set<Uuid>> seen = new IdentityHashMap<>();
        for (int i = 0; i < memberIds.size(); i++) {
            keys.add(GroupView.keyOf(group.memberIds[i], group.instanceIds[i]));
            subscriptions.add(seen.computeIfAbsent(group.subscriptions[i], this::idsOf));
            owned.add(new HashMap<>());
        }
        // Only topics that somebody subscribes to: the group has no others.
        for (int topic = 0; topic < ids.length; topic++) {
            topics.put(ids[topic], group.topicStart[topic + 1] - group.topicStart[topic]);
            addOwned(topic);
        }
    }

    /**
     * Makes the view.
     *
     * @return null if an id is missing: the brokers have none, or the client does not know it
     */
    static IdentifiedGroup of(Group group) {
        return Arrays.asList(group.topicIds).contains(null) ? null : new IdentifiedGroup(group);
    }

    /** Returns the rows of partitions that are named by topic id; of no members' other topics. */
    int[] toTarget(List<Map<Uuid, Set<Integer>>> byMember) {
        Map<Uuid, Integer> numbers = new HashMap<>();
        for (int topic = 0; topic < ids.length; topic++) {
            numbers.put(ids[topic], topic);
        }
        int[] target = new int[group.numRows()];
        Arrays.fill(target, Group.NOBODY);
        for (int i = 0; i < byMember.size(); i++) {
            for (Map.Entry<Uuid, Set<Integer>> entry : byMember.get(i).entrySet()) {
                int first = group.topicStart[numbers.get(entry.getKey())];
                for (int number : entry.getValue()) {
                    target[first + number] = i;
                }
            }
        }
        return target;
    }

    @Override
    public List<String> memberIds() {
        return memberIds;
    }

    @Override
    public List<String> keys() {
        return keys;
    }

    @Override
    public List<String> racks() {
        return Arrays.asList(group.racks);
    }

    @Override
    public List<Set<Uuid>> subscriptions() {
        return subscriptions;
    }

    @Override
    public Map<Uuid, Integer> topics() {
        return topics;
    }

    @Override
    public boolean isHomogeneous() {
        return group.hasEqualSubscriptions();
    }

    @Override
    public Map<Uuid, Set<Integer>> owned(int member) {
        return owned.get(member);
    }

    private Set<Uuid> idsOf(int[] numbers) {
        Set<Uuid> found = new HashSet<>();
        for (int topic : numbers) {
            found.add(ids[topic]);
        }
        return found;
    }

    private void addOwned(int topic) {
        int first = group.topicStart[topic];
        int end = group.topicStart[topic + 1];
        Map<Integer, int[]> numbers = new HashMap<>();
        Map<Integer, Integer> sizes = new HashMap<>();
        for (int row = first; row < end; row++) {
            int owner = group.owner(row);
            if (owner != Group.NOBODY) {
                int size = sizes.merge(owner, 1, Integer::sum);
                int[] known = numbers.getOrDefault(owner, new int[4]);
                known = size > known.length ? Arrays.copyOf(known, 2 * known.length) : known;
                known[size - 1] = row - first;
                numbers.put(owner, known);
            }
        }
        numbers.forEach((owner, known) ->
                owned.get(owner).put(ids[topic], Spans.of(Arrays.copyOf(known, sizes.get(owner)))));
    }
}
