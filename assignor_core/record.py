"""What all records of the hint topic have in common: canonical JSON, two lines, a signature and bounds.

A value is an envelope, a line feed and the payload's bytes, both canonical JSON (ADR 5). The bounds hold
for hints and loads, in the encoder and in the decoder (ADR 67): whatever a decoder accepts is plausible
and small enough to work with. Whatever breaks a rule raises `HintFormatError`.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from assignor_core.errors import HintForeignError, HintFormatError, HintSignatureError

MAX_VALUE_BYTES = 8 * 1024 * 1024
"""A record's value may have no more: nearly eight times what Kafka accepts by default."""
MAX_SEQUENCE = 2**53
"""The largest sequence and the latest time, in milliseconds: every JSON library reads it exactly."""
MAX_NUMBER = 2**31 - 1
"""The largest count, limit, load and partition number."""
MAX_PARTITIONS_IN_ALL = 2_000_000
"""The most partitions that one record may name, and that a group may have to be placed by load."""
MAX_KEY_UNITS = 1024
_MAX_UNITS = {"cluster_id": 128, "group_id": MAX_KEY_UNITS, "snapshot_id": 256}
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_UUID_BYTES = 16
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")


def canonical_json(content: object) -> bytes:
    """Return JSON bytes that depend on the content alone: keys sorted, no spaces, ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def parse_json(data: bytes, what: str) -> object:
    """Return the JSON value in `data`, or raise `HintFormatError` whatever is wrong with it.

    A lone surrogate is wrong in any text, keys included: there is no UTF-8 for it.
    """
    try:
        parsed: object = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_keys)
        if b"\\u" in data:
            json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise HintFormatError(f"the {what} is no JSON: {_printable(error)}") from error
    return parsed


def read_fields(data: bytes, required: Collection[str], optional: Collection[str]) -> dict[str, Any]:
    """Return the fields of a payload: all that are required, and some that may be there."""
    content = parse_json(data, "payload")
    if not isinstance(content, dict) or set(content).difference(optional) != set(required):
        raise HintFormatError(f"the payload's fields must be {list(required)}, and may be {list(optional)}")
    return content


def _printable(error: BaseException) -> str:
    return str(error)[:200].encode("utf-8", "backslashreplace").decode("utf-8")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key is repeated in one object")
    return content


def record_key(prefix: str, group_id: str) -> bytes:
    """Return the key of a group's record."""
    try:
        return (prefix + group_id).encode("utf-8")
    except UnicodeEncodeError as error:
        raise HintFormatError(f"the group id {group_id!r:.80} has half a surrogate pair") from error


def read_envelope(line: bytes, fields: Collection[str]) -> tuple[dict[str, Any], str | None]:
    """Return the fields of an envelope without its signature, and the signature."""
    content = parse_json(line, "envelope")
    if not isinstance(content, dict) or set(content) != set(fields) | {"hmac"}:
        raise HintFormatError(f"the envelope must be an object with the fields {sorted(fields)} and hmac")
    signature = content.pop("hmac")
    if not (signature is None or isinstance(signature, str)):
        raise HintFormatError("the envelope's hmac is no text")
    return content, signature


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Return the envelope and the payload of a record's value."""
    if len(value) > MAX_VALUE_BYTES:
        raise HintFormatError(
            f"{len(value)} bytes are more than the {MAX_VALUE_BYTES} that a record may have"
        )
    first, separator, payload_bytes = value.partition(b"\n")
    if not separator:
        raise HintFormatError("there is no line feed between envelope and payload")
    return first, payload_bytes


def sign(group_key: bytes, head: Mapping[str, Any], payload_bytes: bytes) -> str:
    """Return the HMAC-SHA256, in hexadecimal, of an envelope without its signature and a payload."""
    return hmac.new(group_key, canonical_json(head) + b"\n" + payload_bytes, hashlib.sha256).hexdigest()


def join_value(head: Mapping[str, Any], payload_bytes: bytes, group_key: bytes | None) -> bytes:
    """Return the value of a record: the envelope with its signature, a line feed, the payload's bytes."""
    if b"\n" in payload_bytes:
        raise HintFormatError("the payload holds a line feed: it is not canonical")
    signature = None if group_key is None else sign(group_key, head, payload_bytes)
    value = canonical_json({**head, "hmac": signature}) + b"\n" + payload_bytes
    split_value(value)
    return value


def check_signature(
    group_key: bytes, head: Mapping[str, Any], payload_bytes: bytes, signature: str | None
) -> None:
    """Raise `HintSignatureError` unless a signature is there and holds."""
    if signature is None:
        raise HintSignatureError("the record is not signed, and this reader asks for signatures")
    wanted = sign(group_key, head, payload_bytes)
    # Compared as bytes: compare_digest refuses text that is not ASCII.
    if not hmac.compare_digest(signature.encode("utf-8"), wanted.encode("ascii")):
        raise HintSignatureError("the record's signature does not hold for this group's key")


def check_payload_is_for(payload: Any, group_id: str, cluster_id: str | None) -> None:
    """Raise `HintForeignError` unless a payload is for this group and, if it is known, this cluster."""
    if payload.group_id != group_id:
        raise HintForeignError(f"the record is for group {payload.group_id!r:.80}, not {group_id!r:.80}")
    if cluster_id is not None and payload.cluster_id != cluster_id:
        raise HintForeignError(
            f"the record is for cluster {payload.cluster_id!r:.80}, not {cluster_id!r:.80}"
        )


def check_number(number: object, what: str, *, low: int = 0, high: int = MAX_NUMBER) -> int:
    """Return a whole number within its bounds."""
    if type(number) is not int or not low <= number <= high:
        # Not the number itself: to write out a huge one takes long, and Python refuses it.
        shown = f"{number}" if type(number) is int and abs(number) < 2**64 else type(number).__name__
        raise HintFormatError(f"the {what} is no whole number from {low} to {high}: {shown}")
    return number


def check_text(text: object, what: str, max_units: int = MAX_KEY_UNITS) -> str:
    """Return a text of at most so many UTF-16 units, without a lone surrogate."""
    if not isinstance(text, str):
        raise HintFormatError(f"the {what} is no text")
    if text.isascii():
        units = len(text)
    else:
        try:
            units = len(text.encode("utf-16-be")) // 2
        except UnicodeEncodeError as error:
            raise HintFormatError(f"the {what} has half a surrogate pair: {text!r:.80}") from error
    if units > max_units:
        raise HintFormatError(f"the {what} is longer than {max_units} characters: {text!r:.80}")
    return text


def together_content(together: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return lists of topics that stay together as records have them."""
    return sorted(sorted(map(topic_id_text, topics)) for topics in together)


def check_together(content: object) -> None:
    """Check the lists of topics that stay together, by id."""
    if not isinstance(content, list) or not content:
        raise HintFormatError("the payload's together has no lists of topics")
    if not all(isinstance(topics, list) and len(topics) > 1 for topics in content):
        raise HintFormatError("the payload's together has no lists of topics")
    seen: set[str] = set()
    for topics in content:
        for topic in topics:
            if topic_id_text(check_text(topic, "topic id")) != topic or topic in seen:
                raise HintFormatError(f"the payload's together has {topic!r:.80}, or has it twice")
            seen.add(topic)
    if content != sorted(map(sorted, content)):
        raise HintFormatError("the payload's together does not ascend")


def check_common_fields(content: Mapping[str, Any]) -> None:
    """Check the fields that hints and loads share: the three ids and the two limits."""
    for name, max_units in _MAX_UNITS.items():
        check_text(content[name], name, max_units)
    for name in ("count_slack", "max_moves"):
        check_number(content[name], name)


def check_fingerprint(content: object) -> None:
    """Raise `HintFormatError` unless the content is a SHA-256 in lower-case hexadecimal."""
    if not (isinstance(content, str) and _FINGERPRINT.fullmatch(content)):
        raise HintFormatError("the fingerprint is no SHA-256 in lower-case hexadecimal")


def topic_id_text(topic_id: uuid.UUID | bytes | str) -> str:
    """Return a topic id in the one text form that evenlag uses: Kafka's own, 22 characters.

    Parameters
    ----------
    topic_id
        A UUID, its 16 bytes, Kafka's text of it (URL-safe base64 without padding) or the usual text.

    Raises
    ------
    HintFormatError
        If it is none of these.

    Examples
    --------
    >>> topic_id_text("00000000-0000-0000-0000-000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    if isinstance(topic_id, str):
        return _topic_id_from_text(topic_id)
    raw = topic_id.bytes if isinstance(topic_id, uuid.UUID) else bytes(topic_id)
    if len(raw) != _UUID_BYTES:
        raise HintFormatError(f"a topic id has {_UUID_BYTES} bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


@lru_cache(maxsize=16_384)  # the same few topics stand at every member of a group
def _topic_id_from_text(text: str) -> str:
    if _KAFKA_UUID.fullmatch(text):
        try:
            # Through bytes: the last character has four spare bits, so other texts mean the same id.
            return topic_id_text(base64.urlsafe_b64decode(text + "=="))
        except binascii.Error as error:
            raise HintFormatError(f"{text!r} is no topic id") from error
    try:
        return topic_id_text(uuid.UUID(text))
    except ValueError as error:
        raise HintFormatError(f"{text!r:.60} is no topic id") from error
