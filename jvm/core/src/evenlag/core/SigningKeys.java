package evenlag.core;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.crypto.Mac;

/** The keys that may have signed a record, during a key change several; none if nothing is verified. */
public final class SigningKeys {
    /** No signature is verified. */
    public static final SigningKeys NONE = new SigningKeys(List.of(), false);

    private static final byte[] BROKER_CONTEXT =
            "evenlag broker hint key v1\0".getBytes(StandardCharsets.US_ASCII);

    private final List<byte[]> given;
    private final boolean areMasterKeys;

    private SigningKeys(List<byte[]> given, boolean areMasterKeys) {
        this.given = List.copyOf(given);
        this.areMasterKeys = areMasterKeys;
    }

    /** For a broker, which derives each group's key: {@code assignor_core.hint.derive_broker_key}. */
    public static SigningKeys ofMasters(List<byte[]> masterKeys) {
        return new SigningKeys(masterKeys, true);
    }

    /** For a consumer, which has the key of its own group: {@code assignor_core.hint.derive_group_key}. */
    public static SigningKeys ofGroup(List<byte[]> groupKeys) {
        return new SigningKeys(groupKeys, false);
    }

    boolean isEmpty() {
        return given.isEmpty();
    }

    List<byte[]> of(String groupId) {
        if (!areMasterKeys) {
            return given;
        }
        List<byte[]> keys = new ArrayList<>(given.size());
        for (byte[] masterKey : given) {
            Mac mac = HintCodec.mac(masterKey);
            mac.update(BROKER_CONTEXT);
            keys.add(mac.doFinal((HintCodec.HINT_PREFIX + groupId).getBytes(StandardCharsets.UTF_8)));
        }
        return keys;
    }

    /** Whether others are the same keys, in the same order. */
    boolean isSame(SigningKeys other) {
        boolean isSame = given.size() == other.given.size();
        for (int i = 0; isSame && i < given.size(); i++) {
            isSame = Arrays.equals(given.get(i), other.given.get(i));
        }
        return isSame;
    }
}
