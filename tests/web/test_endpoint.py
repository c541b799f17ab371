"""The cron URL as plain values: who is let in, how long to wait, what is answered."""

import json
from concurrent.futures import Future

import pytest
from sqlalchemy.exc import OperationalError

from lazycron import LazyCron, TickReport
from lazycron.web.endpoint import Endpoint, Reply, Request, Waiting
from tests.conftest import SECRET

WAITING = Waiting(default=5.0, most=60.0)
TOKEN = LazyCron(secret=SECRET).cron_token or ""
OTHER = LazyCron(secret="another secret, long enough").cron_token or ""


@pytest.fixture
def endpoint() -> Endpoint:
    """The cron URL with two tokens, as during a rotation."""
    return Endpoint([TOKEN, OTHER], "/lazycron", WAITING)


def asked(path: str, method: str = "GET", query: str = "", authorization: str = "") -> Request:
    """Make a request."""
    given = authorization.encode("utf-8", "surrogatepass")
    return Request(method=method, path=path, query=query, authorization=given)


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_a_right_token_in_path_or_header_is_admitted(endpoint: Endpoint, token: str) -> None:
    """Either token while secrets rotate; the scheme's case does not matter."""
    assert endpoint.admits(asked(f"/lazycron/{token}"))
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert endpoint.admits(asked("/lazycron", authorization=f"{scheme} {token}"))


def test_one_slash_at_the_end_does_not_matter(endpoint: Endpoint) -> None:
    """Monitors and people add one; the app's 404 would leave the token in the access log."""
    assert endpoint.admits(asked(f"/lazycron/{TOKEN}/"))
    assert endpoint.admits(asked("/lazycron/", authorization=f"Bearer {TOKEN}"))


@pytest.mark.parametrize(
    "request_",
    [
        asked("/lazycron/" + "0" * 40),
        asked(f"/lazycron/{TOKEN[:-1]}"),
        asked(f"/lazycron/{TOKEN}//"),
        asked(f"/lazycron/{TOKEN}/x"),
        asked(f"/lazycron/{TOKEN.upper()}"),
        asked(f"/lazycron//{TOKEN}"),
        asked(f"/other/{TOKEN}"),
        asked(f"/{TOKEN}"),
        asked("/lazycron/"),
        asked("/lazycron//"),
        asked("/lazycron//", authorization=f"Bearer {TOKEN}"),
        asked("/lazycron"),
        asked("/lazycron", authorization="Bearer"),
        asked("/lazycron", authorization="Bearer " + "0" * 40),
        asked("/lazycron", authorization=f"Basic {TOKEN}"),
        asked("/lazycron", authorization=TOKEN),
        asked("/lazycron/x", authorization=f"Bearer {TOKEN}"),
        asked("/lazycron/schlüssel"),
        asked("/lazycron/\ud800"),
        asked("/lazycron", authorization="Bearer schlüssel\ud800"),
    ],
)
def test_anything_else_is_the_apps(endpoint: Endpoint, request_: Request) -> None:
    """Wrong, cut, upper-case, misplaced and non-ASCII tokens: not admitted, nothing raised."""
    assert not endpoint.admits(request_)


@pytest.mark.parametrize("secret", [None, "short", ["short", ""], []])
def test_without_a_good_secret_there_is_no_path_at_all(
    secret: str | list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can match, not even an empty token."""
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    endpoint = Endpoint(LazyCron(secret=secret).cron_tokens, "/lazycron", WAITING)
    assert endpoint.paths == frozenset()
    assert not endpoint.admits(asked("/lazycron/"))
    assert not endpoint.admits(asked("/lazycron", authorization="Bearer "))


def test_the_paths_worth_a_look_are_the_bare_one_and_each_tokens(endpoint: Endpoint) -> None:
    """They hold everything that could be admitted."""
    plain = {"/lazycron", f"/lazycron/{TOKEN}", f"/lazycron/{OTHER}"}
    assert endpoint.paths == plain | {f"{one}/" for one in plain}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_get_head_and_post_are_not_refused(endpoint: Endpoint, method: str) -> None:
    """Free monitors send only HEAD."""
    assert endpoint.refusal(asked("/lazycron", method)) is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_refused_with_405(endpoint: Endpoint, method: str) -> None:
    """And told which there are."""
    reply = endpoint.refusal(asked("/lazycron", method))
    assert reply is not None
    assert (reply.status, reply.status_line) == (405, "405 Method Not Allowed")
    assert dict(reply.headers)["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 5),
        ("wait=", 5),
        ("wait=0", 0),
        ("wait=2.5", 2.5),
        ("wait=60", 60),
        ("wait=61", 60),
        ("wait=inf", 60),
        ("wait=1e300", 60),
        ("other=1&wait=7", 7),
    ],
)
def test_the_wait_is_read_and_bounded(endpoint: Endpoint, query: str, seconds: float) -> None:
    """More than the most is the most."""
    assert endpoint.wait_for(asked("/lazycron", query=query)) == seconds
    assert endpoint.refusal(asked("/lazycron", query=query)) is None


@pytest.mark.parametrize("query", ["wait=soon", "wait=-1", "wait=nan", "wait=1,5", "wait=%00"])
def test_a_wait_that_is_no_number_is_told(endpoint: Endpoint, query: str) -> None:
    """With what is accepted; nothing ticks."""
    reply = endpoint.refusal(asked("/lazycron", query=query))
    assert reply is not None
    assert reply.status == 400
    assert b"pass seconds from 0 to 60" in reply.body


def answered(endpoint: Endpoint, method: str = "GET", **settled: object) -> Reply:
    """Answer with a report that is made, failed, cancelled or still to come."""
    report: Future[TickReport] = Future()
    result, error = settled.get("result"), settled.get("error")
    if isinstance(result, TickReport):
        report.set_result(result)
    if isinstance(error, BaseException):
        report.set_exception(error)
    if settled.get("cancelled"):
        report.cancel()
    return endpoint.answer(asked("/lazycron", method), report)


def test_a_finished_tick_is_200_with_its_report(endpoint: Endpoint) -> None:
    """As JSON."""
    reply = answered(endpoint, result=TickReport())
    assert reply.status == 200
    assert json.loads(reply.body)["stopped_by"] == "done"


def test_a_tick_that_goes_on_is_202(endpoint: Endpoint) -> None:
    """There is no report yet."""
    assert answered(endpoint).status == 202


def test_a_tick_that_was_not_begun_is_503(endpoint: Endpoint) -> None:
    """The process is stopping."""
    assert answered(endpoint, cancelled=True).status == 503


def test_an_unreachable_database_is_503_without_its_address(endpoint: Endpoint) -> None:
    """Its error's text names hosts and users."""
    error = OperationalError("SELECT 1", {}, Exception("no route to db.internal"))
    reply = answered(endpoint, error=error)
    assert reply.status == 503
    assert b"internal" not in reply.body


@pytest.mark.parametrize("error", [TimeoutError("a"), ValueError("a secret"), SystemExit("a")])
def test_any_other_error_is_500_with_its_kind_alone(
    endpoint: Endpoint, error: BaseException
) -> None:
    """A TimeoutError of the tick is not taken for the end of the wait."""
    reply = answered(endpoint, error=error)
    assert reply.status == 500
    assert json.loads(reply.body) == {"error": type(error).__name__}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_no_answer_is_cached_indexed_or_refers(endpoint: Endpoint, method: str) -> None:
    """HEAD has the same headers as GET and no body."""
    for reply in (
        answered(endpoint, method),
        answered(endpoint, method, result=TickReport()),
        answered(endpoint, method, cancelled=True),
        endpoint.refusal(asked("/lazycron", method, "wait=soon")),
        endpoint.refusal(asked("/lazycron", "PUT")),
    ):
        assert reply is not None
        headers = dict(reply.headers)
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Robots-Tag"] == "noindex"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Location" not in headers
        assert int(headers["Content-Length"]) > 0
        assert bool(reply.body) == (method != "HEAD" or reply.status == 405)
