package evenlag.core;

import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** Metrics of hints, as one MBean of numbers only. */
public final class Metrics implements DynamicMBean {
    private final Map<String, Supplier<Number>> values = new LinkedHashMap<>();

    private final String name;
    private final String description;

    /**
     * Makes the metrics.
     *
     * @param name the MBean's
     * @param description in words
     * @param reasons the events that are counted
     */
    public Metrics(
            String name,
            String description,
            Set<Reason> reasons,
            Journal journal,
            HintWatcher watcher,
            Supplier<Number> lastAssignMicros) {
        this.name = name;
        this.description = description;
        for (Reason reason : reasons) {
            values.put(camelCase(reason.name()) + "Total", () -> journal.count(reason));
        }
        values.put("IgnoredTotal", () -> sumIgnored(journal));
        values.put("HintsHeld", () -> table(watcher) == null ? 0 : table(watcher).numHeld());
        values.put("LoadsHeld", () -> table(watcher) == null ? 0 : table(watcher).numLoads());
        values.put("HintBytes", () -> table(watcher) == null ? 0 : table(watcher).bytes());
        values.put("MaxBytes", () -> table(watcher) == null ? 0 : table(watcher).maxBytes());
        values.put("IsCold", () -> table(watcher) == null ? 1 : 0);
        values.put("CacheAgeSeconds", watcher::ageSeconds);
        values.put("LastPollAgeSeconds", watcher::pollAgeSeconds);
        values.put("LagRecords", watcher::lagRecords);
        values.put("LastAssignMicros", lastAssignMicros);
    }

    /** Registers the MBean and replaces an older one. */
    public void register() throws JMException {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName key = new ObjectName(name);
        if (server.isRegistered(key)) {
            server.unregisterMBean(key);
        }
        server.registerMBean(this, key);
    }

    @Override
    public Object getAttribute(String attribute) throws AttributeNotFoundException {
        Supplier<Number> value = values.get(attribute);
        if (value == null) {
            throw new AttributeNotFoundException(attribute);
        }
        return value.get().doubleValue();
    }

    @Override
    public AttributeList getAttributes(String[] names) {
        AttributeList list = new AttributeList();
        for (String each : names) {
            if (values.containsKey(each)) {
                list.add(new Attribute(each, values.get(each).get().doubleValue()));
            }
        }
        return list;
    }

    @Override
    public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
        throw new AttributeNotFoundException("nothing here can be set");
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
        return new AttributeList();
    }

    @Override
    public Object invoke(String action, Object[] parameters, String[] signature) {
        throw new UnsupportedOperationException("nothing here can be called");
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        MBeanAttributeInfo[] attributes = values.keySet().stream()
                .map(each -> new MBeanAttributeInfo(each, "double", each, true, false, false))
                .toArray(MBeanAttributeInfo[]::new);
        return new MBeanInfo(Metrics.class.getName(), description, attributes, null, null, null);
    }

    private static HintTable table(HintWatcher watcher) {
        return watcher.knowledge().table();
    }

    private static long sumIgnored(Journal journal) {
        long sum = 0;
        for (Reason reason : Reason.values()) {
            sum += reason.isIgnored ? journal.count(reason) : 0;
        }
        return sum;
    }

    private static String camelCase(String name) {
        StringBuilder out = new StringBuilder();
        for (String word : name.split("_")) {
            out.append(word.charAt(0)).append(word.substring(1).toLowerCase(Locale.ROOT));
        }
        return out.toString();
    }
}
