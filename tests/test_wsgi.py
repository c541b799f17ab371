"""The WSGI edge: the app's own iterable, wrapped only when a look is due."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import pytest
from sqlalchemy import URL

from lazycron import LazyCron
from lazycron.testing import ManualClock
from lazycron.web.watcher import Watcher, watcher_of
from lazycron.wsgi import App, Environ, LazyCronMiddleware, StartResponse
from tests.conftest import MakeCron
from tests.edges import (
    DEADLINE,
    Gate,
    at_rest,
    call_wsgi,
    count_statements,
    environ_of,
    hello_wsgi,
    tick_threads,
    until,
)


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron on SQLite."""
    return make_cron(sqlite)


class Body:
    """An app's iterable that counts what a server does with it."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts)

    def close(self) -> None:
        """Count."""
        self.closed += 1


class SizedBody(Body):
    """One with a length."""

    def __len__(self) -> int:
        return len(self.parts)


def answering(answer: Iterable[bytes]) -> App:
    """Make an app that answers with this very object."""

    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        del environ
        start_response("200 OK", [("Content-Type", "text/plain")])
        return answer

    return app


def quiet(cron: LazyCron) -> None:
    """Make a first request, so that nothing is due afterwards."""
    call_wsgi(LazyCronMiddleware(hello_wsgi, cron), environ_of("/"))
    at_rest(cron)


# the response


@pytest.mark.parametrize("answer", [[b"a"], Body(b"a"), SizedBody(b"a"), (b"a" for _ in "1")])
def test_with_nothing_due_the_iterable_is_the_apps_own(
    cron: LazyCron, answer: Iterable[bytes]
) -> None:
    """The very object, whatever it is."""
    quiet(cron)
    app = LazyCronMiddleware(answering(answer), cron)
    call_wsgi(app, environ_of("/"))  # the first one learns the paths
    assert app(environ_of("/"), lambda *_: None) is answer


def test_start_response_and_environ_are_handed_on_as_they_are(cron: LazyCron) -> None:
    """The very objects, due or not."""
    seen: list[Any] = []

    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        seen.append((environ, start_response))
        return []

    def start_response(*_: Any) -> None:
        pass

    middleware = LazyCronMiddleware(app, cron)
    for _ in range(2):
        environ = environ_of("/")
        before = dict(environ)
        middleware(environ, start_response)
        assert seen[-1][0] is environ
        assert seen[-1][1] is start_response
        assert environ == before


@pytest.mark.parametrize("kind", [Body, SizedBody])
def test_a_due_look_wraps_closes_once_and_keeps_the_length(
    cron: LazyCron, kind: type[Body]
) -> None:
    """`__len__` is there exactly when the app's iterable has one."""
    body = kind(b"a", b"b")
    returned = LazyCronMiddleware(answering(body), cron)(environ_of("/"), lambda *_: None)
    assert returned is not body
    assert hasattr(returned, "__len__") == (kind is SizedBody)
    if kind is SizedBody:
        assert len(returned) == 2  # type: ignore[arg-type]
    assert b"".join(returned) == b"ab"
    assert not cron.is_used  # not before the end
    returned.close()  # type: ignore[attr-defined]
    assert body.closed == 1
    at_rest(cron)
    assert cron.is_used


def test_a_wrapped_list_keeps_its_length_and_needs_no_close(cron: LazyCron) -> None:
    """Servers compute Content-Length from a length of one."""
    returned = LazyCronMiddleware(answering([b"a"]), cron)(environ_of("/"), lambda *_: None)
    assert len(returned) == 1  # type: ignore[arg-type]
    returned.close()  # type: ignore[attr-defined]
    at_rest(cron)
    assert cron.is_used


def test_closing_that_raises_raises_and_wakes_all_the_same(cron: LazyCron) -> None:
    """The server sees what it would see without us."""

    class Broken(Body):
        def close(self) -> None:
            super().close()
            message = "closing failed"
            raise OSError(message)

    body = Broken(b"a")
    returned = LazyCronMiddleware(answering(body), cron)(environ_of("/"), lambda *_: None)
    with pytest.raises(OSError, match="closing failed"):
        returned.close()  # type: ignore[attr-defined]
    assert body.closed == 1
    at_rest(cron)
    assert cron.is_used


def test_what_the_apps_object_has_can_be_asked_of_what_is_returned(cron: LazyCron) -> None:
    """Code that calls the app itself reads `status_code`, be a look due or not."""

    class Response(list[bytes]):
        status_code = 200

    app: Any = LazyCronMiddleware(answering(Response([b"a"])), cron)
    for due in (True, False):
        watcher_of(cron).look_again_at = float("-inf" if due else "inf")
        returned = app(environ_of("/"), lambda *_: None)
        assert returned.status_code == 200
        with pytest.raises(AttributeError, match="no_such_thing"):
            returned.no_such_thing  # noqa: B018 - asking is the point


def test_a_key_error_of_a_server_at_the_cron_url_is_no_second_answer(cron: LazyCron) -> None:
    """The app is not asked as well."""
    asked: list[str] = []

    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        asked.append(environ["PATH_INFO"])
        return hello_wsgi(environ, start_response)

    def broken(*_: object) -> None:
        raise KeyError("a broken server")  # noqa: EM101, TRY003 - as such errors are

    middleware = LazyCronMiddleware(app, cron)
    with pytest.raises(KeyError, match="a broken server"):
        middleware(environ_of(f"/lazycron/{cron.cron_token}"), broken)
    assert asked == []


def test_a_script_name_is_stripped_at_a_slash_alone(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once mounted at /st, a request for /static/x is not one for a path below it."""
    kinds: list[str] = []
    watcher = watcher_of(cron)
    app = LazyCronMiddleware(hello_wsgi, cron, admin_paths=["/static", "/users"])
    monkeypatch.setattr(Watcher, "look", lambda _self, kind, _loop: kinds.append(kind))
    for script, path in (("/st", "/x"), ("", "/static/x"), ("/st", "/users/1")):
        watcher.look_again_at = float("-inf")
        call_wsgi(app, environ_of(path, SCRIPT_NAME=script))
    assert kinds == ["traffic", "admin", "admin"]


def test_a_file_wrapper_is_untouched_and_wakes_all_the_same(cron: LazyCron) -> None:
    """Servers look for their own class, or for a file."""
    with open(__file__, "rb") as file:  # noqa: PTH123 - the very object
        for answer in (FileWrapper(file), file):
            environ = environ_of("/") | {"wsgi.file_wrapper": FileWrapper}
            watcher_of(cron).look_again_at = float("-inf")
            app = LazyCronMiddleware(answering(answer), cron)
            assert app(environ, lambda *_: None) is answer
    at_rest(cron)
    assert cron.is_used


def raising(*_: object) -> list[bytes]:
    """Raise before there is an iterable."""
    message = "the app's own"
    raise LookupError(message)


def test_an_app_that_raises_raises_and_wakes_all_the_same(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The server's error page is a response: a broken page must not stop the tasks."""
    runs: list[str] = []
    cron.task(every="minute", name="minute")(lambda: runs.append("minute"))
    app = LazyCronMiddleware(raising, cron)
    for _ in range(2):
        with pytest.raises(LookupError, match="the app's own"):
            app(environ_of("/"), lambda *_: None)
        at_rest(cron)
        clock.tick(60)
    assert runs == ["minute"]


@pytest.mark.parametrize("settings", [{"tick_in": "request", "traffic": True}, {"traffic": False}])
def test_an_app_that_raises_makes_nobody_wait(cron: LazyCron, settings: dict[str, Any]) -> None:
    """Nor does it trigger where visitors do not."""
    with pytest.raises(LookupError, match="the app's own"):
        LazyCronMiddleware(raising, cron, **settings)(environ_of("/"), lambda *_: None)
    assert not cron.is_used


def test_both_edges_of_the_specification_are_kept(cron: LazyCron) -> None:
    """The validator of the standard library stands on both sides."""
    app = validator(LazyCronMiddleware(validator(hello_wsgi), cron))
    for path in ("/", "/", f"/lazycron/{cron.cron_token}?wait=9"):
        call_wsgi(app, environ_of(path, SCRIPT_NAME=""))
    at_rest(cron)


def test_a_router_that_shifts_the_path_does_not_hide_the_admins(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Dispatchers move PATH_INFO into SCRIPT_NAME in the very environ."""

    def router(environ: Environ, start_response: StartResponse) -> list[bytes]:
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = "/admin", "/users"
        return hello_wsgi(environ, start_response)

    cron.task(every="minute", name="minute")(lambda: None)
    app = LazyCronMiddleware(router, cron, admin_paths=["/admin"])
    for _ in range(2):
        call_wsgi(app, environ_of("/admin/users"))
        at_rest(cron)
        clock.tick(60)
    assert cron.history()[0].trigger == "admin"


def test_a_missing_path_info_is_the_root(cron: LazyCron) -> None:
    """The specification lets servers leave an empty one out."""
    environ = environ_of("/")
    del environ["PATH_INFO"]
    app = LazyCronMiddleware(answering([b"a"]), cron)
    for _ in range(2):
        assert call_wsgi(app, dict(environ)).body == b"a"
    at_rest(cron)


# the cron URL


def test_the_url_answers_202_at_once_and_waits_when_told(
    cron: LazyCron, clock: ManualClock
) -> None:
    """A sync worker is not to be held by default."""
    cron.task(every="minute", name="minute")(lambda: None)
    app = LazyCronMiddleware(hello_wsgi, cron)
    url = f"/lazycron/{cron.cron_token}"
    assert call_wsgi(app, environ_of(url)).status == 202
    at_rest(cron)
    clock.tick(60)
    answer = call_wsgi(app, environ_of(f"{url}?wait=20"))
    assert answer.status == 200
    assert [run["task"] for run in json.loads(answer.body)["runs"]] == ["minute"]


def test_a_wrong_token_is_the_apps_own_404(cron: LazyCron) -> None:
    """Status, headers and body; the same for none, a short, a cut and a strange one."""
    app = LazyCronMiddleware(hello_wsgi, cron)
    for path in ("/lazycron", "/lazycron/", "/lazycron/0", f"/lazycron/{cron.health_token}"):
        bare, ours = (call_wsgi(one, environ_of(path)) for one in (hello_wsgi, app))
        assert (ours.status, ours.headers, ours.body) == (bare.status, bare.headers, bare.body)
    at_rest(cron)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 200), ("PUT", 405)])
def test_the_header_form_and_the_methods(cron: LazyCron, method: str, status: int) -> None:
    """HEAD runs the tick and has no body."""
    app = LazyCronMiddleware(hello_wsgi, cron)
    authorization = f"Bearer {cron.cron_token}"
    environ = environ_of("/lazycron?wait=9", method, HTTP_AUTHORIZATION=authorization)
    answer = call_wsgi(app, environ)
    assert answer.status == status
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.body == b"") == (method == "HEAD")
    assert cron.is_used == (status == 200)


def test_the_token_is_gone_from_the_servers_own_environ(cron: LazyCron) -> None:
    """Its access log is written from there."""
    app = LazyCronMiddleware(hello_wsgi, cron)
    url = f"/lazycron/{cron.cron_token}"
    environ = environ_of(f"{url}?wait=1", RAW_URI=url, REQUEST_URI=url, SCRIPT_NAME="/shop")
    call_wsgi(app, environ)
    assert str(cron.cron_token) not in str(environ)
    assert environ["RAW_URI"] == "/shop/lazycron/-"


def test_below_a_script_name_the_path_is_the_same(cron: LazyCron) -> None:
    """PATH_INFO has it stripped already."""
    app = LazyCronMiddleware(hello_wsgi, cron, path="/hidden/place/")
    environ = environ_of(f"/hidden/place/{cron.cron_token}", SCRIPT_NAME="/shop")
    assert call_wsgi(app, environ).status == 202
    at_rest(cron)


def test_two_hits_at_once_get_one_report(cron: LazyCron, clock: ManualClock) -> None:
    """The second starts nothing and waits for the first one's tick."""
    gate = Gate()
    cron.task(every="minute", name="slow")(gate.run)
    app = LazyCronMiddleware(hello_wsgi, cron)
    url = f"/lazycron/{cron.cron_token}?wait=20"
    call_wsgi(app, environ_of(url))
    clock.tick(60)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(call_wsgi, app, environ_of(url))
        assert gate.begun.wait(DEADLINE)
        second = pool.submit(call_wsgi, app, environ_of(url))
        time.sleep(0.02)  # for the second to be waiting; nothing fails if it is not yet
        gate.go.set()
        bodies = {first.result(DEADLINE).body, second.result(DEADLINE).body}
    assert len(bodies) == 1
    assert len(cron.history("slow")) == 1


def test_secrets_known_by_the_first_request_count(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """App factories configure a LazyCron after it was mounted."""
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    app = LazyCronMiddleware(hello_wsgi, cron)
    cron.configure(secret=["new secret, long enough", "old secret, long enough"])
    for token in cron.cron_tokens:
        assert call_wsgi(app, environ_of(f"/lazycron/{token}?wait=9")).status == 200
    assert len(set(cron.cron_tokens)) == 2


# ticking in requests


def test_in_requests_only_the_url_ticks_and_before_it_answers(
    cron: LazyCron, clock: ManualClock
) -> None:
    """No thread is made; a hundred visitors run nothing and cost no SQL."""
    threads: list[int] = []
    cron.task(every="minute", name="minute")(lambda: threads.append(threading.get_ident()))
    before = len(tick_threads())
    app = LazyCronMiddleware(hello_wsgi, cron, tick_in="request")
    url = f"/lazycron/{cron.cron_token}"
    assert call_wsgi(app, environ_of(url)).status == 200
    clock.tick(60)
    with count_statements() as statements:
        for _ in range(100):
            call_wsgi(app, environ_of("/"))
    assert (threads, statements) == ([], [])
    answer = call_wsgi(app, environ_of(url))
    assert json.loads(answer.body)["runs"][0]["status"] == "ok"
    assert threads == [threading.get_ident()]
    assert len(tick_threads()) == before


def test_in_requests_with_traffic_visitors_tick_as_well(cron: LazyCron, clock: ManualClock) -> None:
    """In their own thread, when the iterable is closed; whatever is raised stays there."""
    threads: list[int] = []

    def fails() -> None:
        threads.append(threading.get_ident())
        raise SystemExit

    cron.task(every="minute", name="fails")(fails)
    app = LazyCronMiddleware(hello_wsgi, cron, tick_in="request", traffic=True)
    for _ in range(2):
        assert call_wsgi(app, environ_of("/")).body == b"hello"
        clock.tick(60)
    assert threads == [threading.get_ident()]
    assert cron.history()[0].status == "failed"
    assert cron.history()[0].trigger == "traffic"


def test_in_requests_hits_and_visitors_do_not_pile_up(cron: LazyCron, clock: ManualClock) -> None:
    """While one request ticks, a second hit is told that it goes on, and visitors pass."""
    gate = Gate()
    cron.task(every="minute", name="slow")(gate.run)
    app = LazyCronMiddleware(hello_wsgi, cron, tick_in="request", traffic=True)
    url = f"/lazycron/{cron.cron_token}"
    call_wsgi(app, environ_of(url))
    clock.tick(60)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(call_wsgi, app, environ_of(url))
        assert gate.begun.wait(DEADLINE)
        assert call_wsgi(app, environ_of(url)).status == 202
        clock.tick(5)
        assert call_wsgi(app, environ_of("/")).body == b"hello"
        gate.go.set()
        assert first.result(DEADLINE).status == 200
    assert len(cron.history("slow")) == 1


def has(runs: list[int], number: int) -> bool:
    """Tell whether there were so many runs."""
    return len(runs) == number


def test_a_due_request_of_a_quiet_site_is_enough(cron: LazyCron, clock: ManualClock) -> None:
    """One visitor an hour keeps an hourly task going."""
    runs: list[int] = []
    cron.task(every="hour", name="hourly")(lambda: runs.append(1))
    app = LazyCronMiddleware(hello_wsgi, cron)
    for number in range(5):
        call_wsgi(app, environ_of("/"))
        until(partial(has, runs, number))
        at_rest(cron)
        clock.tick(3600)
