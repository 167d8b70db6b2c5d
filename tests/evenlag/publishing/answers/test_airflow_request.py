"""What the command reports when Airflow refuses an answer, from a server that answers as Airflow does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from evenlag.airflow_rest import AirflowRest, AirflowRestError
from evenlag.enums import Channel
from evenlag.errors import JobError, UsageError
from evenlag.publishing.answers.airflow_request import answer_request, find_access

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "eyJhbGciOi.s3cret-t0ken"
REQUEST = {"plan_id": "3f" * 32, "run_id": "approval__3f", "dag_id": "eu_plan_approval"}


class _Handler(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    content: ClassVar[bytes] = b""
    seen: ClassVar[list[tuple[str, str, str | None, Any]]] = []

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append(
            (self.command, self.path, self.headers["Authorization"], json.loads(body or b"null"))
        )
        self.send_response(self.status)
        if self.status in {302, 307, 308}:
            self.send_header("Location", f"http://{self.headers['Host']}/elsewhere")
        self.end_headers()
        self.wfile.write(self.content)

    do_PATCH = do_GET = _answer  # noqa: N815  # the base class looks for these names

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        _Handler.seen.clear()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}"
        finally:
            made.shutdown()
            thread.join()


def test_the_token_and_the_reason_reach_the_request_of_the_plan(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Handler.status, _Handler.content = 200, b'{"responded_by": {"id": "7", "name": "Ada"}}'
    monkeypatch.setenv("EVENLAG_AIRFLOW_TOKEN", TOKEN)
    access = find_access(f"{server}/")
    assert access is not None
    actor = answer_request(access, REQUEST, approve=True, reason="after the sale")
    assert (actor.id, actor.name, actor.channel) == ("7", "Ada", Channel.COMMAND)
    ((method, path, authorization, body),) = _Handler.seen
    assert (method, authorization) == ("PATCH", f"Bearer {TOKEN}")
    assert path == (
        "/api/v2/dags/eu_plan_approval/dagRuns/approval__3f/taskInstances/approve_plan/-1/hitlDetails"
    )
    assert (body["chosen_options"], body["params_input"]["reason"]) == (["Approve"], "after the sale")
    assert body["params_input"]["sent_by"].startswith("command ")
    assert TOKEN not in repr(access)


@pytest.mark.parametrize(
    ("status", "content", "exit_code", "message"),
    [
        (401, b'{"detail": "Invalid JWT token"}', 3, "refuses the token (401): get a new one"),
        (
            403,
            b'{"detail": "User=eve (id=9)\\n\\u001b[2J is not a respondent"}',
            2,
            "does not let this user answer",
        ),
        (404, b"{}", 4, "does not ask about it in the run approval__3f of eu_plan_approval"),
        (409, b"{}", 2, "has an answer already"),
        (422, b'{"detail": [{"msg": "Field required"}]}', 3, "answers 422: [{'msg': 'Field required'}]"),
        (500, b"\xff<html>" + b"x" * 9000, 3, "answers 500: "),
        (302, b"", 3, "answers 302: redirects to http://"),
        (308, b"", 3, "answers 308: redirects to http://"),
        (200, b"<html>a login page</html>", 3, "no Airflow answers at"),
        (200, b"[]", 3, "what answers at"),
    ],
)
def test_each_refusal_is_one_line_with_its_exit_code_and_without_the_token(
    server: str, status: int, content: bytes, exit_code: int, message: str
) -> None:
    _Handler.status, _Handler.content = status, content
    with pytest.raises(JobError) as caught:
        answer_request(AirflowRest(server, TOKEN), REQUEST, approve=False, reason="no")
    text = str(caught.value)
    assert (caught.value.exit_code, message in text) == (exit_code, True), text
    assert len(text) < 400
    assert "\n" not in text
    assert TOKEN not in text
    # No redirect carries it elsewhere.
    assert [path for _, path, *_ in _Handler.seen if path == "/elsewhere"] == []


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_get_request_carries_the_token_to_no_redirect(server: str, status: int) -> None:
    _Handler.status, _Handler.content = status, b""
    with pytest.raises(AirflowRestError, match="redirects to") as caught:
        AirflowRest(server, TOKEN).get("version")
    assert caught.value.status == status
    assert [path for _, path, *_ in _Handler.seen] == ["/api/v2/version"]


def test_only_http_is_an_address(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("{}", encoding="utf-8")
    with pytest.raises(AirflowRestError, match="is no address"):
        AirflowRest(f"file://{tmp_path}").get("/version")


def test_nobody_answers(server: str) -> None:
    closed = AirflowRest("http://127.0.0.1:1", TOKEN)
    assert server
    with pytest.raises(JobError, match=r"no Airflow answers at http://127\.0\.0\.1:1") as caught:
        answer_request(closed, REQUEST, approve=True, reason="yes")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "url",
    ["airflow:8080", "ftp://host", "http://", "http://ada:pw@host", "http://ho st", "http://[", "file:///x"],
)
def test_what_is_no_address_of_airflow_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UsageError, match="no address of Airflow") as caught:
        find_access(url)
    assert "pw" not in str(caught.value)


def test_the_token_comes_from_the_environment_or_a_file_and_is_never_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVENLAG_AIRFLOW_URL", "EVENLAG_AIRFLOW_TOKEN", "EVENLAG_AIRFLOW_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert find_access(None) is None
    monkeypatch.setenv("EVENLAG_AIRFLOW_URL", "https://airflow/af/")
    with pytest.raises(UsageError, match="EVENLAG_AIRFLOW_TOKEN_FILE names"):
        find_access(None)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    monkeypatch.setenv("EVENLAG_AIRFLOW_TOKEN_FILE", str(file))
    access = find_access(None)
    assert access is not None
    assert (access.url, access.token) == ("https://airflow/af", TOKEN)
    for wrong in (f"{TOKEN}\nX-Evil: 1", f"{TOKEN} {TOKEN}", "t\N{LATIN SMALL LETTER O WITH DIAERESIS}ken"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(UsageError, match="EVENLAG_AIRFLOW_TOKEN_FILE holds no token") as caught:
            find_access(None)
        assert "s3cret" not in str(caught.value)
