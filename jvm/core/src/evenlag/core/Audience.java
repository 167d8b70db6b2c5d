package evenlag.core;

import java.util.Objects;
import java.util.Set;

/** Who reads a hint topic: a broker, for any group, or the consumers of some groups. */
public final class Audience {
    private static final Audience BROKER = new Audience(null);

    private final Set<String> groupIds;

    private Audience(Set<String> groupIds) {
        this.groupIds = groupIds;
    }

    /** A broker: it assigns groups of the consumer protocol, whose records name member ids. */
    public static Audience broker() {
        return BROKER;
    }

    /** The consumers of these groups: other groups' records are not looked at. */
    public static Audience consumersOf(Set<String> groupIds) {
        return new Audience(Set.copyOf(groupIds));
    }

    boolean isBroker() {
        return groupIds == null;
    }

    /** Returns the groups; null for any. */
    Set<String> groupIds() {
        return groupIds;
    }

    boolean isSame(Audience other) {
        return other != null && Objects.equals(groupIds, other.groupIds);
    }

    boolean isOf(String groupId) {
        return groupIds == null || groupIds.contains(groupId);
    }

    /** Whether a record counts that names these member ids, or none. */
    boolean isFor(Object memberIds) {
        return groupIds != null || memberIds != null;
    }
}
