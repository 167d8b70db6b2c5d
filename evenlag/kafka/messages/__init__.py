"""Kafka messages that kafka-python lacks; its loader generates them from the schemas in this folder."""

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # kafka-python: no types
    """ConsumerGroupDescribe (KIP-848): describes groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Members of these groups, with subscriptions, assignments and target assignments."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """StreamsGroupDescribe (KIP-1071): describes groups of the streams protocol."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Topologies of these groups, and their members with their tasks."""


class ShareGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """ShareGroupDescribe (KIP-932): describes share groups."""


class ShareGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Members of these groups, with subscriptions and assignments."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """DescribeShareGroupOffsets (KIP-932): asks for the offsets of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # as above
    """Start offsets of share partitions, and since version 1 (KIP-1226) their lag."""
