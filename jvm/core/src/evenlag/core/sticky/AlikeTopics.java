package evenlag.core.sticky;

import java.util.Arrays;

/** Topics that are in the same lists. */
final class AlikeTopics {
    private AlikeTopics() {}

    /**
     * Returns a class for each topic: of two topics the same if they are in the same lists.
     *
     * <p>All begin in one class, and each list splits those of which it has a part. This compares no members, and
     * ends early when each topic is alone, which is so after few lists if they differ much.
     *
     * @param lists numbers of topics, each once in a list
     * @return classes in the order of their first topics
     */
    static int[] classes(int numTopics, int[][] lists) {
        int[] classOf = new int[numTopics];
        int[] size = new int[numTopics + 1];
        int[] inList = new int[numTopics + 1]; // of each class, how many topics the list has
        int[] splitTo = new int[numTopics + 1]; // the class that these are then
        size[0] = numTopics;
        int numClasses = 1;
        for (int list = 0; list < lists.length && numClasses < numTopics; list++) {
            for (int topic : lists[list]) {
                inList[classOf[topic]]++;
            }
            for (int topic : lists[list]) {
                int known = classOf[topic];
                if (inList[known] > 0) {
                    splitTo[known] = inList[known] == size[known] ? known : numClasses++;
                    size[known] -= inList[known];
                    size[splitTo[known]] += inList[known];
                    inList[known] = 0;
                }
                classOf[topic] = splitTo[known];
            }
        }
        return inOrder(classOf);
    }

    private static int[] inOrder(int[] classOf) {
        int[] numbers = new int[classOf.length + 1];
        Arrays.fill(numbers, Group.NOBODY);
        int known = 0;
        for (int topic = 0; topic < classOf.length; topic++) {
            if (numbers[classOf[topic]] == Group.NOBODY) {
                numbers[classOf[topic]] = known++;
            }
            classOf[topic] = numbers[classOf[topic]];
        }
        return classOf;
    }
}
