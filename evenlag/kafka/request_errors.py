"""Errors of requests to brokers: which ones mean that a broker does not answer, and their text."""

from __future__ import annotations

_MAX_CHARACTERS = 300


def no_answer_errors() -> tuple[type[Exception], ...]:
    """Return kafka-python's errors of a broker that cannot be reached, or does not answer in time."""
    import kafka.errors

    return (
        kafka.errors.KafkaConnectionError,
        kafka.errors.KafkaTimeoutError,
        kafka.errors.RequestTimedOutError,
        kafka.errors.NodeNotReadyError,
        kafka.errors.Cancelled,
        OSError,
    )


def in_one_line(error: Exception) -> str:
    """Return an error with its name; the text of kafka-python's errors already begins with their name."""
    name, text = type(error).__name__, str(error)
    return (text if text.startswith(name) else f"{name}: {text}")[:_MAX_CHARACTERS]
