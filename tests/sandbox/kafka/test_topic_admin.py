"""A topic is created also while a broker leaves the cluster."""

from __future__ import annotations

from typing import Any, Self

import pytest
from kafka.errors import InvalidTopicError, NodeNotReadyError, TopicAlreadyExistsError, UnknownBrokerIdError

from sandbox.kafka import topic_admin
from sandbox.kafka.topic_admin import create_topic


class Admin:
    """Stands for kafka-python's client: when a broker leaves cannot be chosen between two of its calls."""

    answers: list[Exception | None]
    num_closed = 0

    def __init__(self, **_: Any) -> None:
        """Connect to nothing."""

    def create_topics(self, _topics: Any) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        type(self).num_closed += 1


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[Admin]:
    monkeypatch.setattr(Admin, "num_closed", 0)
    monkeypatch.setattr(topic_admin, "KafkaAdminClient", Admin)
    monkeypatch.setattr(topic_admin, "_RETRY_S", 0.01)
    return Admin


@pytest.mark.parametrize(("last", "is_new"), [(None, True), (TopicAlreadyExistsError("t"), False)])
def test_a_topic_is_created_once_the_brokers_are_there(
    admin: type[Admin], last: Exception | None, is_new: bool
) -> None:
    admin.answers = [UnknownBrokerIdError(3), NodeNotReadyError(3), last]
    assert create_topic({}, "t", 1) is is_new
    assert (admin.answers, admin.num_closed) == ([], 3)


def test_a_refusal_is_not_repeated(admin: type[Admin]) -> None:
    admin.answers = [InvalidTopicError("t"), None]
    with pytest.raises(InvalidTopicError):
        create_topic({}, "t", 1)
    assert admin.num_closed == 1


def test_brokers_that_do_not_come_back_are_an_error(
    admin: type[Admin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_admin, "_CREATE_WITHIN_S", 0.0)
    admin.answers = [UnknownBrokerIdError(3), None]
    with pytest.raises(UnknownBrokerIdError):
        create_topic({}, "t", 1)
