"""While a broker is away: one line of evenlag, and kafka-python's lines at level DEBUG."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.selector import NetworkSelector

from evenlag.errors import JobError
from evenlag.kafka.connection import INTERVAL_S, admin_client, summarize_connection_errors
from evenlag.logging_setup import _prepare
from evenlag.policy.cluster_settings import ClusterSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.brokers import Brokers

OURS = "evenlag.kafka.connection"
REFUSED = KafkaConnectionError("111 ECONNREFUSED")


class Loop:
    """A client's event loop, of which a connection is a part."""


class Connection:
    """What a line of kafka-python's connections is about."""

    def __init__(self, node_id: int | str, net: Loop | None = None) -> None:
        self.node_id, self.net = node_id, net or Loop()

    def __str__(self) -> str:
        return f"<KafkaConnection node_id={self.node_id} broker_version=(4, 3) (disconnected)>"


class Transport:
    """The same of a transport."""

    def __init__(self, connection: Connection, address: str = "10.0.0.2:9092") -> None:
        self._connection, self._address = connection, address

    def get_protocol(self) -> Connection:
        return self._connection

    def __str__(self) -> str:
        return f"<KafkaTCPTransport [{self._address}<-59516]>"


@pytest.fixture(autouse=True)
def warnings_only() -> Iterator[None]:
    """Set up kafka-python's loggers as a job does."""
    summarize_connection_errors()
    logger = logging.getLogger("kafka")
    before = logger.level
    logger.setLevel(logging.WARNING)
    yield
    logger.setLevel(before)


def log(name: str, message: str, *arguments: Any, at_s: float = 0.0) -> None:
    logger = logging.getLogger(name)
    record = logger.makeRecord(name, logging.ERROR, __file__, 1, message, arguments, None)
    record.created = at_s
    logger.handle(record)


def lose(connection: Connection, error: Exception = REFUSED, *, at_s: float = 0.0) -> None:
    """Log what kafka-python 3.0.12 logs for an attempt to connect."""
    log("kafka.net.manager", "Connection failed: %s", error, at_s=at_s)
    log("kafka.net.connection", "%s: Connection lost: %s", connection, error, at_s=at_s)


def test_a_broker_that_is_away_has_one_line_a_minute_with_the_number_of_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = Connection(2)
    for at_s in range(25):
        lose(connection, at_s=float(at_s))
    assert caplog.record_tuples == [
        (
            OURS,
            logging.WARNING,
            "no connection to broker 2 (KafkaConnectionError: 111 ECONNREFUSED); the client tries again",
        )
    ]
    caplog.clear()
    lose(connection, at_s=INTERVAL_S - 0.1)
    lose(connection, at_s=INTERVAL_S)
    assert caplog.text.splitlines()[-1].endswith(
        "no connection to broker 2 (KafkaConnectionError: 111 ECONNREFUSED, "
        "25 more errors since the last report); the client tries again"
    )
    assert len(caplog.records) == 1


def test_an_address_is_named_and_each_client_has_its_own_brokers(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Connection(2), Connection(2)
    log("kafka.net.transport", "%s: socket disconnected", Transport(first))
    log(
        "kafka.net.transport", "%s: Abort (%s)", Transport(first), KafkaConnectionError("socket disconnected")
    )
    for connection in (first, second, Connection(3, first.net)):
        lose(connection, KafkaConnectionError("socket disconnected"))
    assert [message.partition(" (Kafka")[0] for message in caplog.messages] == [
        "no connection to broker 2 (10.0.0.2:9092)",
        "no connection to broker 2",
        "no connection to broker 3",
    ]


def test_clients_that_were_connected_to_the_same_address_share_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = "10.0.0.9:9092"
    for client in range(3):
        connection = Connection(9)
        log(
            "kafka.net.transport",
            "%s: socket disconnected",
            Transport(connection, address),
            at_s=float(client),
        )
        lose(connection, at_s=float(client))
    (line,) = caplog.messages
    assert line.startswith("no connection to broker 9 (10.0.0.9:9092) (")


def test_a_slow_task_of_a_busy_machine_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def task() -> None:
        """End at once: any time is above the threshold."""

    net = NetworkSelector(slow_task_threshold_secs=1e-12)
    net.run(task)
    net.close()
    assert caplog.messages == []


def test_nothing_is_lost_at_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    with caplog.at_level(logging.DEBUG):
        lose(Connection(2))
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("kafka.net.manager", "DEBUG"),
        (OURS, "WARNING"),
        ("kafka.net.connection", "DEBUG"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        SaslAuthenticationFailedError("Authentication failed: Invalid username or password"),
        KafkaConnectionError("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        KafkaConnectionError("Received unrecognized correlation id"),
        KafkaConnectionError("DNS Resolution failure"),
    ],
)
def test_an_error_of_any_kind_is_told_in_the_one_line(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    lose(Connection(2), error)
    [(logger, level, message)] = caplog.record_tuples
    assert (logger, level) == (OURS, logging.WARNING)
    assert str(error) in message


def test_the_terminal_shows_nothing_of_kafka_python_unless_its_logger_is_at_debug() -> None:
    def shown(level: int) -> bool:
        logging.getLogger("kafka").setLevel(level)
        record = logging.LogRecord("kafka.net.selector", logging.ERROR, __file__, 1, "any", (), None)
        return _prepare(record)

    assert not shown(logging.WARNING)
    assert shown(logging.DEBUG)


def test_a_line_in_other_words_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    log("kafka.net.connection", "%s: lost, because of %s", Connection(2), REFUSED)
    log("kafka.coordinator", "%s: Connection lost: %s", Connection(2), REFUSED)
    # kafka-python's exceptions have no hash.
    logging.getLogger("kafka.net.connection").error(REFUSED)
    assert len(caplog.records) == 3


def test_objects_of_another_version_end_no_client(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        log("kafka.net.connection", "%s: Connection lost: %s", "a text", REFUSED)
        log("kafka.net.transport", "%s: socket disconnected", object())
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4


@pytest.mark.broker
def test_one_server_of_two_that_is_down_has_one_line_with_its_address(
    broker: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    servers = ("127.0.0.1:1", broker.bootstrap_servers.partition(",")[0])
    settings = ClusterSettings(bootstrap_servers=servers, request_timeout_ms=60_000)
    # The order is random: until the dead one came first.
    for _ in range(40):
        with admin_client(settings) as client:
            assert client.describe_cluster()["cluster_id"] == broker.cluster_id
        if caplog.records:
            break
    (line,) = caplog.messages
    assert line.startswith("no answer from 127.0.0.1:1 (")
    caplog.clear()
    with (
        pytest.raises(JobError, match=r"127\.0\.0\.1:1 refuses connections"),
        admin_client(
            settings.model_copy(update={"bootstrap_servers": ("127.0.0.1:1",), "request_timeout_ms": 3_000})
        ),
    ):
        pass
    # The exception tells it.
    assert caplog.messages == []
