package evenlag.core.place;

/**
 * How good an allocation is: first the rows that members lack, then the levels, the largest first.
 *
 * @param needs how many rows members lack by the count rule
 * @param levels of all members, ascending
 */
record Score(long needs, long[] levels) {
    static Score of(Allocation all) {
        return new Score(all.bounds().needs(), all.sortedLevels());
    }

    boolean isBetterThan(Score other) {
        if (needs != other.needs) {
            return needs < other.needs;
        }
        for (int i = levels.length - 1; i >= 0; i--) {
            if (levels[i] != other.levels[i]) {
                return levels[i] < other.levels[i];
            }
        }
        return false;
    }
}
