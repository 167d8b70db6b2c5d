package evenlag.broker;

import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
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

/** Metrics of hints, as one MBean, {@value #NAME}, of numbers only. */
final class Metrics implements DynamicMBean {
    static final String NAME = "evenlag:type=BrokerAssignor";

    private final Map<String, Supplier<Number>> values = new LinkedHashMap<>();

    Metrics(Journal journal, HintWatcher watcher, Supplier<Number> lastAssignMicros) {
        for (Reason reason : Reason.values()) {
            values.put(camelCase(reason.name()) + "Total", () -> journal.count(reason));
        }
        values.put("IgnoredTotal", () -> sumIgnored(journal));
        values.put("HintsHeld", () -> table(watcher) == null ? 0 : table(watcher).numHeld());
        values.put("HintBytes", () -> table(watcher) == null ? 0 : table(watcher).bytes());
        values.put("IsCold", () -> table(watcher) == null ? 1 : 0);
        values.put("CacheAgeSeconds", watcher::ageSeconds);
        values.put("LastPollAgeSeconds", watcher::pollAgeSeconds);
        values.put("LagRecords", watcher::lagRecords);
        values.put("LastAssignMicros", lastAssignMicros);
    }

    /** Registers the MBean and replaces an older one. */
    void register() throws JMException {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName(NAME);
        if (server.isRegistered(name)) {
            server.unregisterMBean(name);
        }
        server.registerMBean(this, name);
    }

    @Override
    public Object getAttribute(String name) throws AttributeNotFoundException {
        Supplier<Number> value = values.get(name);
        if (value == null) {
            throw new AttributeNotFoundException(name);
        }
        return value.get().doubleValue();
    }

    @Override
    public AttributeList getAttributes(String[] names) {
        AttributeList list = new AttributeList();
        for (String name : names) {
            if (values.containsKey(name)) {
                list.add(new Attribute(name, values.get(name).get().doubleValue()));
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
    public Object invoke(String name, Object[] parameters, String[] signature) {
        throw new UnsupportedOperationException("nothing here can be called");
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        MBeanAttributeInfo[] attributes = values.keySet().stream()
                .map(name -> new MBeanAttributeInfo(name, "double", name, true, false, false))
                .toArray(MBeanAttributeInfo[]::new);
        String what = "evenlag's hints in this broker";
        return new MBeanInfo(Metrics.class.getName(), what, attributes, null, null, null);
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
