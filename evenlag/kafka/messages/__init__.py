"""Kafka messages that kafka-python lacks; its loader generates them from the schemas in this folder."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # kafka-python: no types
    """ConsumerGroupDescribe (KIP-848): describes groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Members of these groups, with subscriptions, assignments and target assignments."""


__all__ = ["ConsumerGroupDescribeRequest", "ConsumerGroupDescribeResponse"]
