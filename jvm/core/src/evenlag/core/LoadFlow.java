package evenlag.core;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.Uuid;

/**
 * What changes loads after their measurement: {@code assignor_core.algorithms.present_loads} in Java.
 *
 * @param arrivals load that arrives in {@code perS} seconds, by partition
 * @param owners index in {@code speeds} of the member that processes a partition; {@link Loads#UNKNOWN} if none does
 * @param speeds load that a member processes in {@code perS} seconds
 * @param perS seconds, from 1 on
 * @param horizonS the arrivals of so many seconds always remain of a load
 */
public record LoadFlow(Map<Uuid, int[]> arrivals, Map<Uuid, int[]> owners, int[] speeds, int perS, int horizonS) {
    static final int MAX_AGE_S = 86_400;
    static final int MAX_PER_S = 1_000_000;

    /** Returns the loads at an age; each member processes an equal share of each partition until it is empty. */
    Map<Uuid, int[]> present(Map<Uuid, int[]> loads, long ageMs) {
        long ageS = Math.min(Math.max(ageMs, 0) / 1000, MAX_AGE_S);
        Map<Uuid, int[]> backlogs = new HashMap<>();
        int[] numRows = new int[speeds.length];
        loads.forEach((topic, measured) -> {
            int[] backlog = new int[measured.length];
            for (int number = 0; number < measured.length; number++) {
                long arrived = arrivals.get(topic)[number] * ageS / perS;
                long waiting = Math.max(0, measured[number] - lasting(topic, number));
                backlog[number] = (int) Math.min(waiting + arrived, Integer.MAX_VALUE);
                if (isProcessed(topic, number, measured)) {
                    numRows[owners.get(topic)[number]]++;
                }
            }
            backlogs.put(topic, backlog);
        });
        int[] levels = levels(loads, backlogs, numRows, ageS);
        Map<Uuid, int[]> present = new HashMap<>();
        loads.forEach((topic, measured) -> {
            int[] backlog = backlogs.get(topic);
            int[] now = new int[measured.length];
            for (int number = 0; number < measured.length; number++) {
                int level = isProcessed(topic, number, measured) ? levels[owners.get(topic)[number]] : 0;
                long left = backlog[number] - Math.min(backlog[number], level) + lasting(topic, number);
                now[number] = measured[number] == Loads.UNKNOWN
                        ? Loads.UNKNOWN
                        : (int) Math.min(left, Integer.MAX_VALUE);
            }
            present.put(topic, now);
        });
        return present;
    }

    /** Returns up to which backlog each member has processed its partitions. */
    private int[] levels(Map<Uuid, int[]> loads, Map<Uuid, int[]> backlogs, int[] numRows, long ageS) {
        int[][] byMember = new int[speeds.length][];
        Arrays.setAll(byMember, member -> new int[numRows[member]]);
        int[] size = new int[speeds.length];
        loads.forEach((topic, measured) -> {
            for (int number = 0; number < measured.length; number++) {
                if (isProcessed(topic, number, measured)) {
                    int owner = owners.get(topic)[number];
                    byMember[owner][size[owner]++] = backlogs.get(topic)[number];
                }
            }
        });
        int[] levels = new int[speeds.length];
        Arrays.setAll(levels, member -> level(byMember[member], speeds[member] * ageS / perS));
        return levels;
    }

    /** Returns the largest level at which min(backlog, level) adds up to the work at most. */
    private static int level(int[] backlogs, long work) {
        Arrays.sort(backlogs);
        long left = work;
        for (int row = 0; row < backlogs.length; row++) {
            int numLeft = backlogs.length - row;
            long before = row == 0 ? 0 : backlogs[row - 1];
            if (left < (backlogs[row] - before) * numLeft) {
                return (int) (before + left / numLeft);
            }
            left -= (backlogs[row] - before) * numLeft;
        }
        return Integer.MAX_VALUE;
    }

    private long lasting(Uuid topic, int number) {
        return Math.min((long) arrivals.get(topic)[number] * horizonS / perS, Integer.MAX_VALUE);
    }

    private boolean isProcessed(Uuid topic, int number, int[] measured) {
        return measured[number] != Loads.UNKNOWN && owners.get(topic)[number] != Loads.UNKNOWN;
    }
}
