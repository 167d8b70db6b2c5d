"""Kafka messages that kafka-python does not have, made by its own generator from schemas beside this."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # kafka-python: no types
    """Asks for groups of the protocol of KIP-848."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Their members, with what they take and hold."""


__all__ = ["ConsumerGroupDescribeRequest", "ConsumerGroupDescribeResponse"]
