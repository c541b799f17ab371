"""The ASGI edge: the app's response untouched, the cron URL, root paths, and lifespans."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from lazycron import LazyCron
from lazycron.asgi import App, LazyCronMiddleware, Message, Receive, Scope, Send
from lazycron.clock import SystemClock
from lazycron.testing import ManualClock
from lazycron.web.watcher import Watcher, watcher_of
from tests.conftest import MakeCron
from tests.edges import (
    DEADLINE,
    Answer,
    Gate,
    Site,
    at_rest,
    call,
    count_statements,
    hello,
    scope_of,
    tick_threads,
    until,
)


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron on SQLite."""
    return make_cron(sqlite)


@pytest.fixture
def site(cron: LazyCron) -> Iterator[Site]:
    """An app that says hello, with the middleware around it, on a running loop."""
    with Site(LazyCronMiddleware(hello, cron)) as served:
        yield served
        at_rest(cron)


def sent(answer: Answer) -> tuple[Any, ...]:
    """Return all that a server would see."""
    return (answer.status, answer.headers, answer.body, answer.sent)


# the response


def test_the_messages_are_the_apps_own(site: Site, cron: LazyCron) -> None:
    """And scope, receive and send are handed on as they are, due or not."""
    seen: list[tuple[object, ...]] = []

    async def app(*arguments: object) -> None:
        seen.append(arguments)

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        pass

    middleware = LazyCronMiddleware(app, cron)
    for _ in range(2):
        scope = scope_of("/")
        before = dict(scope)
        site.run(middleware(scope, receive, send))
        assert all(a is b for a, b in zip(seen[-1], (scope, receive, send), strict=True))
        assert scope == before
        at_rest(cron)
    assert len(seen) == 2


def test_nothing_begins_before_the_app_has_ended(cron: LazyCron) -> None:
    """Its response is sent and its background work is done by then."""
    used: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await hello(scope, receive, send)
        await asyncio.sleep(0.1)
        used.append(cron.is_used)

    with Site(LazyCronMiddleware(app, cron)) as site:
        site.get("/")
        at_rest(cron)
    assert used == [False]
    assert cron.is_used


def test_an_app_that_raises_raises_and_is_a_beat_as_well(cron: LazyCron) -> None:
    """Starlette sends its error page first and raises the error then."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await hello(scope, receive, send)
        message = "the app's own"
        raise KeyError(message)

    with Site(LazyCronMiddleware(app, cron)) as site:
        with pytest.raises(KeyError, match="the app's own"):
            site.get("/")
        at_rest(cron)
    assert cron.is_used


def test_a_websocket_is_served_and_is_a_beat_at_its_end(cron: LazyCron) -> None:
    """Even one on the cron URL's own path, which is the app's."""
    paths: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        paths.append(scope["path"])
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})

    async def socket(path: str) -> None:
        async def nothing(*_: object) -> Any:  # noqa: ANN401 - receive and send in one
            pass

        scope = {"type": "websocket", "path": path, "headers": []}
        await LazyCronMiddleware(app, cron)(scope, nothing, nothing)

    with Site(app) as site:
        for path in ("/chat", f"/lazycron/{cron.cron_token}"):
            site.run(socket(path))
        at_rest(cron)
    assert len(paths) == 2
    assert cron.is_used


def test_a_cancelled_request_cancels_no_task(cron: LazyCron, clock: ManualClock) -> None:
    """A client that has gone away takes its request along, never a run."""
    gate = Gate()
    cron.task(every="minute", name="slow")(gate.run)
    with Site(LazyCronMiddleware(hello, cron)) as site:
        site.get("/")
        at_rest(cron)
        clock.tick(60)
        hit = call(site.app, scope_of(f"/lazycron/{cron.cron_token}?wait=60"))
        request = asyncio.run_coroutine_threadsafe(hit, site.loop)
        assert gate.begun.wait(DEADLINE)
        request.cancel()
        gate.go.set()
        at_rest(cron)
    assert cron.history("slow")[0].status == "ok"


# tasks and loops


def test_async_tasks_run_on_the_apps_own_loop(
    site: Site, cron: LazyCron, clock: ManualClock
) -> None:
    """So that they can use what the app has opened there; sync ones run in the tick thread."""
    where: dict[str, Any] = {}

    @cron.task(every="minute")
    async def on_loop() -> None:
        where["loop"] = asyncio.get_running_loop()

    @cron.task(every="minute")
    def in_thread() -> None:
        where["thread"] = threading.current_thread().name

    for door in ("/", f"/lazycron/{cron.cron_token}"):
        where.clear()
        site.get("/")
        at_rest(cron)
        clock.tick(60)
        site.get(door)
        at_rest(cron)
        assert where["loop"] is site.loop
        assert where["thread"].startswith("lazycron-tick")


def test_a_blocked_event_loop_does_not_keep_a_lease_from_being_renewed(
    sqlite: URL, make_cron: MakeCron
) -> None:
    """An async task blocks its loop for three leases, and another process finds nothing to run."""
    runs: list[str] = []
    begun, released = threading.Event(), threading.Event()

    async def blocking() -> None:
        runs.append("run")
        begun.set()
        time.sleep(3.2)  # noqa: ASYNC251 - what must not be done, and is
        released.set()

    crons = [make_cron(sqlite, lease="1s", clock=SystemClock()) for _ in range(2)]
    for one in crons:
        one.task(every="minute", first_run=0, name="blocking")(blocking)
    first, other = crons
    with Site(LazyCronMiddleware(hello, first)) as site:
        watcher = watcher_of(first)
        watcher.tick(site.loop).result(DEADLINE)
        report = watcher.tick(site.loop)
        assert begun.wait(DEADLINE)
        while not released.is_set():
            assert other.run_due().runs == []
            released.wait(0.2)
        assert [run.status for run in report.result(DEADLINE).runs] == ["ok"]
    assert runs == ["run"]
    assert [run.status for run in first.history()] == ["ok"]


def test_a_loop_that_ended_with_its_request_is_no_trouble(
    cron: LazyCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As under a test client that runs each request in a loop of its own."""
    gate = Gate()
    cron.task(every="minute", name="slow")(gate.run)
    app = LazyCronMiddleware(hello, cron)
    asyncio.run(call(app, scope_of("/")))
    at_rest(cron)
    clock.tick(60)
    url = f"/lazycron/{cron.cron_token}?wait=0.1"
    assert asyncio.run(call(app, scope_of(url))).status == 202
    assert gate.begun.wait(DEADLINE)
    gate.go.set()
    at_rest(cron)
    assert caplog.records == []


def test_without_an_asyncio_loop_everything_but_waiting_works(
    cron: LazyCron, clock: ManualClock
) -> None:
    """As under trio: driven by hand, the middleware awaits nothing of asyncio's."""
    runs: list[int] = []
    cron.task(every="minute", name="minute")(lambda: runs.append(1))
    app = LazyCronMiddleware(hello, cron)

    def drive(scope: dict[str, Any]) -> Answer:
        with pytest.raises(StopIteration) as end:
            call(app, scope).send(None)
        assert isinstance(end.value.value, Answer)
        return end.value.value

    assert drive(scope_of("/")).body == b"hello"
    at_rest(cron)
    clock.tick(60)
    assert drive(scope_of(f"/lazycron/{cron.cron_token}")).status == 202
    at_rest(cron)
    assert runs == [1]


# the cron URL


def test_the_url_ticks_and_reports(site: Site, cron: LazyCron, clock: ManualClock) -> None:
    """By default it waits for the tick."""
    cron.task(every="minute", name="minute")(lambda: "All well.")
    url = f"/lazycron/{cron.cron_token}"
    assert json.loads(site.get(url).body)["decisions"]["minute"]["verdict"] == "deferred"
    clock.tick(60)
    answer = site.get(url)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    run = json.loads(answer.body)["runs"][0]
    assert (run["task"], run["message"], run["trigger"]) == ("minute", "All well.", "url")


def test_the_answer_waits_as_long_as_it_is_told(
    site: Site, cron: LazyCron, clock: ManualClock
) -> None:
    """Then it is 202, and the run goes on."""
    gate = Gate()
    cron.task(every="minute", name="slow")(gate.run)
    url = f"/lazycron/{cron.cron_token}"
    site.get(url)
    clock.tick(60)
    start = time.monotonic()
    assert site.get(f"{url}?wait=0.3").status == 202
    assert 0.3 <= time.monotonic() - start < 3
    assert site.get(f"{url}?wait=0").status == 202
    assert gate.begun.is_set()
    gate.go.set()
    assert site.get(f"{url}?wait=9").status == 200
    assert len(cron.history("slow")) == 1


def test_two_hits_at_once_get_one_report(site: Site, cron: LazyCron, clock: ManualClock) -> None:
    """And a hundred more as well."""
    cron.task(every="minute", name="slow")(lambda: threading.Event().wait(0.2) and None)
    url = f"/lazycron/{cron.cron_token}"
    site.get(url)
    clock.tick(60)

    async def hits() -> list[Answer]:
        return await asyncio.gather(*(call(site.app, scope_of(url)) for _ in range(102)))

    answers = site.run(hits())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert len(cron.history("slow")) == 1


@pytest.mark.parametrize(
    ("method", "status", "body"),
    [("GET", 200, True), ("HEAD", 200, False), ("POST", 200, True), ("PUT", 405, True)],
)
def test_the_header_form_and_the_methods(
    site: Site, cron: LazyCron, method: str, status: int, *, body: bool
) -> None:
    """HEAD runs the tick and has no body."""
    headers = {"Authorization": f"Bearer {cron.cron_token}"}
    answer = site.get("/lazycron", method, headers=headers)
    assert (answer.status, bool(answer.body)) == (status, body)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-robots-tag"] == "noindex"
    assert answer.headers["referrer-policy"] == "no-referrer"
    if status == 200:
        assert cron._parts.store.recurring.all() == []
        assert cron._parts.facts.last_tick_at is not None
    else:
        assert not cron.is_used


@pytest.mark.parametrize(
    "path",
    [
        "/lazycron",
        "/lazycron/",
        "/lazycron/" + "0" * 40,
        "/lazycron/schlüssel",
        "/lazycron/\ud800",
        "/missing",
    ],
)
def test_everything_else_is_the_apps_answer(site: Site, path: str) -> None:
    """All messages are the same with and without the middleware."""
    scope = scope_of("/", headers={"Authorization": "Bearer no"}) | {"path": path}
    bare = site.run(call(hello, dict(scope)))
    assert sent(site.run(call(site.app, scope))) == sent(bare)


def test_a_slash_behind_the_token_is_the_same_url(site: Site, cron: LazyCron) -> None:
    """Nor does its token remain in the scope, from which the access log is written."""
    scope = scope_of(f"/lazycron/{cron.cron_token}/", root_path="/shop")
    scope["path"] = "/shop" + scope["path"]
    assert site.run(call(site.app, scope)).status == 200
    assert (scope["path"], scope["raw_path"]) == ("/shop/lazycron/-", b"/shop/lazycron/-")


def test_a_token_cut_or_of_another_kind_is_the_apps_404(site: Site, cron: LazyCron) -> None:
    """So are a token with two slashes behind it, and the health token."""
    token = cron.cron_token or ""
    for wrong in (token[:-1], token + "//", token + "0", token.upper(), cron.health_token):
        answer = site.get(f"/lazycron/{wrong}")
        assert (answer.status, answer.headers["x-app"]) == (404, "hello")


@pytest.mark.parametrize("secret", [None, "fifteen letters"])
def test_without_a_good_secret_the_url_is_off(
    sqlite: URL, make_cron: MakeCron, secret: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `check` says so."""
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    cron = make_cron(sqlite, secret=secret)
    with Site(LazyCronMiddleware(hello, cron)) as site:
        for path in ("/lazycron/None", "/lazycron/", "/lazycron"):
            assert site.get(path, headers={"Authorization": "Bearer "}).body == b"hello"
        at_rest(cron)
    assert "secret" in [problem.name for problem in cron.check()]


def test_every_secret_of_a_rotation_is_accepted(sqlite: URL, make_cron: MakeCron) -> None:
    """The first makes the token that is shown; the old one works until it is taken out."""
    new, old = "the new secret, long enough", "the old secret, long enough"
    old_token = LazyCron(secret=old).cron_token
    cron = make_cron(sqlite, secret=[new, old])
    assert cron.cron_token == LazyCron(secret=new).cron_token
    with Site(LazyCronMiddleware(hello, cron)) as site:
        for token in (cron.cron_token, old_token):
            assert site.get(f"/lazycron/{token}").status == 200
    with Site(LazyCronMiddleware(hello, make_cron(sqlite, secret=new))) as site:
        assert site.get(f"/lazycron/{old_token}").status == 404


def test_the_token_is_gone_from_the_servers_own_scope(site: Site, cron: LazyCron) -> None:
    """Its access log is written from there; refusals hide it as well."""
    for method in ("GET", "PUT"):
        scope = scope_of(f"/up/lazycron/{cron.cron_token}?wait=1", method, root_path="/up")
        site.run(call(site.app, scope))
        assert str(cron.cron_token) not in str(scope)
        assert scope["path"] == "/up/lazycron/-"


def test_an_unreachable_database_is_503(make_cron: MakeCron, tmp_path: Path) -> None:
    """The app goes on answering."""
    (tmp_path / "no_file.db").mkdir()
    cron = make_cron(f"sqlite:///{tmp_path / 'no_file.db'}")
    with Site(LazyCronMiddleware(hello, cron)) as site:
        assert site.get(f"/lazycron/{cron.cron_token}").status == 503
        assert site.get("/").body == b"hello"
        at_rest(cron)


# root paths


@pytest.mark.parametrize("root", ["/up", "/up/", "/up/and/up"])
def test_behind_a_root_path_the_first_request_can_be_the_urls(
    site: Site, cron: LazyCron, root: str
) -> None:
    """The root is learned before the path is compared."""
    path = f"{root.rstrip('/')}/lazycron/{cron.cron_token}"
    assert site.get(path, root_path=root).status == 200


def test_a_server_that_strips_the_root_path_is_understood(site: Site, cron: LazyCron) -> None:
    """Against the specification, some do."""
    assert site.get(f"/lazycron/{cron.cron_token}", root_path="/up").status == 200


def test_another_root_path_is_learned_from_a_request_at_which_a_look_is_due(
    site: Site, cron: LazyCron, clock: ManualClock
) -> None:
    """Before its own path is compared: an app mounted twice answers below both."""
    token = cron.cron_token
    assert site.get(f"/a/lazycron/{token}", root_path="/a").status == 200
    assert site.get("/a/", root_path="/a").status == 200  # a visitor's look
    assert site.get(f"/b/lazycron/{token}", root_path="/b").status == 404
    clock.tick(1)
    assert site.get(f"/b/lazycron/{token}", root_path="/b").status == 200


def test_admin_paths_are_matched_after_the_root_path_as_the_request_came_in(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Routers write root_path into the very scope on their way down."""

    async def page(request: StarletteRequest) -> PlainTextResponse:
        del request
        return PlainTextResponse("page")

    inner = Starlette(routes=[Mount("/admin", routes=[Route("/users", page)])])
    cron.task(every="minute", name="minute")(lambda: None)
    with Site(LazyCronMiddleware(inner, cron, admin_paths=["/admin"])) as site:
        for _ in range(2):
            assert site.get("/up/admin/users", root_path="/up").status == 200
            at_rest(cron)
            clock.tick(60)
    assert cron.history()[0].trigger == "admin"


def test_inside_a_starlette_mount_the_url_lies_below_the_mounts_path(cron: LazyCron) -> None:
    """There root_path is the mount's."""
    app = Starlette(routes=[Mount("/sub", app=LazyCronMiddleware(hello, cron))])
    with Site(app) as site:
        answer = site.get(f"/sub/lazycron/{cron.cron_token}")
        assert (answer.status, json.loads(answer.body)["runs"]) == (200, [])
        assert site.get(f"/lazycron/{cron.cron_token}").status == 404


def test_starlettes_add_middleware_takes_it(cron: LazyCron) -> None:
    """Though it is a function and no class."""
    app = Starlette(
        routes=[Route("/", lambda _: PlainTextResponse("home"))],
        middleware=[Middleware(LazyCronMiddleware, cron=cron, skip_paths=["/static"])],
    )
    with TestClient(app) as client:
        assert client.get("/").text == "home"
        assert client.get(f"/lazycron/{cron.cron_token}").status_code == 200


# ticking in requests


def test_in_requests_only_the_url_ticks_and_before_it_answers(
    cron: LazyCron, clock: ManualClock
) -> None:
    """No tick thread is made; visitors run nothing and cost no SQL."""
    loops: list[Any] = []

    @cron.task(every="minute")
    async def noted() -> None:
        loops.append(asyncio.get_running_loop())

    before = len(tick_threads())
    url = f"/lazycron/{cron.cron_token}?wait=0"
    with Site(LazyCronMiddleware(hello, cron, tick_in="request")) as site:
        assert site.get(url).status == 200
        clock.tick(60)
        with count_statements() as statements:
            for _ in range(100):
                site.get("/")
        assert (loops, statements) == ([], [])
        assert json.loads(site.get(url).body)["runs"][0]["status"] == "ok"
        assert loops == [site.loop]
    assert len(tick_threads()) == before


def test_in_requests_with_traffic_visitors_tick_before_they_end(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The chosen exception to "the visitor never waits"; what is raised stays there."""
    runs: list[int] = []

    def fails() -> None:
        runs.append(1)
        raise SystemExit

    cron.task(every="minute", name="fails")(fails)
    middleware = LazyCronMiddleware(hello, cron, tick_in="request", traffic=True)
    with Site(middleware) as site:
        for number in range(2):
            assert site.get("/").body == b"hello"
            assert len(runs) == number
            clock.tick(60)
    assert cron.history()[0].status == "failed"


# lifespans


def has(runs: list[int], number: int) -> bool:
    """Tell whether there were so many runs."""
    return len(runs) == number


class Lifespan:
    """A server's side of one lifespan."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.sent: list[str] = []
        self.queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answered = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Note what the app says."""
        self.sent.append(message["type"])
        self.answered.set()

    async def say(self, what: str) -> None:
        """Say startup or shutdown, and wait for an answer or the app's end."""
        self.answered.clear()
        await self.queue.put({"type": f"lifespan.{what}"})
        waiting = asyncio.ensure_future(self.answered.wait())
        await asyncio.wait({waiting, self.task}, timeout=DEADLINE, return_when="FIRST_COMPLETED")
        assert self.answered.is_set() or self.task.done()
        waiting.cancel()

    async def begin(self) -> None:
        """Start up."""
        self.task = asyncio.ensure_future(
            self.app({"type": "lifespan", "asgi": {"version": "3.0"}}, self.queue.get, self.send)
        )
        await self.say("startup")

    async def through(self) -> list[str]:
        """Start up, shut down, and return what was said."""
        await self.begin()
        await self.say("shutdown")
        if not self.task.done():
            await asyncio.wait({self.task}, timeout=0.05)
            self.task.cancel()
        else:
            self.task.result()
        return self.sent


async def raises(scope: Scope, receive: Receive, send: Send) -> None:
    """Know no lifespan, as Django."""
    del receive, send
    message = f"only http here, not {scope['type']}"
    raise ValueError(message)


async def raises_after_receiving(scope: Scope, receive: Receive, send: Send) -> None:
    """Fail during startup without saying so."""
    del scope, send
    await receive()
    message = "no such service"
    raise ConnectionError(message)


async def returns(scope: Scope, receive: Receive, send: Send) -> None:
    """Ignore the lifespan."""


async def never_answers(scope: Scope, receive: Receive, send: Send) -> None:
    """Listen for ever and answer nothing."""
    del scope, send
    while True:
        await receive()


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    """Do as the specification says."""
    del scope
    for what in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{what}"
        await send({"type": f"lifespan.{what}.complete"})


async def leaves_early(scope: Scope, receive: Receive, send: Send) -> None:
    """Start up and return."""
    del scope
    await receive()
    await send({"type": "lifespan.startup.complete"})


async def dies_early(scope: Scope, receive: Receive, send: Send) -> None:
    """Start up and raise."""
    await leaves_early(scope, receive, send)
    message = "died later"
    raise ConnectionError(message)


@pytest.mark.parametrize(
    "app",
    [
        raises,
        returns,
        never_answers,
        answers,
        leaves_early,
        dies_early,
        Starlette(),
    ],
    ids=lambda app: getattr(app, "__name__", "starlette"),
)
def test_every_lifespan_is_answered_once_and_drained(
    cron: LazyCron, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the app does with it: else the server would never tell us of its end."""
    drained: list[str] = []
    real = Watcher.drain

    def drain(watcher: Watcher) -> None:
        drained.append("drained")
        real(watcher)

    monkeypatch.setattr(Watcher, "drain", drain)
    lifespan_sent = asyncio.run(_through(LazyCronMiddleware(app, cron)))
    assert lifespan_sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert drained == ["drained"]


async def _through(app: App) -> list[str]:
    return await Lifespan(app).through()


def test_a_startup_that_failed_has_failed(cron: LazyCron) -> None:
    """It is said as the app said it, and raised where it raised."""

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})
        message = "no"
        raise ConnectionError(message)

    async def run() -> list[str]:
        lifespan = Lifespan(LazyCronMiddleware(fails, cron))
        await lifespan.begin()
        with pytest.raises(ConnectionError):
            await lifespan.task
        return lifespan.sent

    assert asyncio.run(run()) == ["lifespan.startup.failed"]


def test_a_startup_that_raises_is_the_servers_to_judge(cron: LazyCron) -> None:
    """The app has received the event, so it knows lifespans: nothing is answered for it."""

    async def run() -> list[str]:
        lifespan = Lifespan(LazyCronMiddleware(raises_after_receiving, cron))
        await lifespan.begin()
        with pytest.raises(ConnectionError, match="no such service"):
            await lifespan.task
        return lifespan.sent

    assert asyncio.run(run()) == []


def test_what_an_app_returns_is_handed_on(cron: LazyCron) -> None:
    """Servers complain of an app that returns something: that is seen with lazycron as well."""

    async def app(scope: Scope, receive: Receive, send: Send) -> object:
        del receive, send
        return scope["path"]

    async def run() -> list[object]:
        middleware: Any = LazyCronMiddleware(app, cron)
        scopes = [{"type": "http", "path": f"/{number}", "headers": []} for number in range(2)]
        return [await middleware(one, None, None) for one in scopes]

    assert asyncio.run(run()) == ["/0", "/1"]


def test_a_shutdown_that_raises_raises_after_the_drain(cron: LazyCron) -> None:
    """The server says so as it would without us."""

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        await leaves_early(scope, receive, send)
        await receive()
        message = "no"
        raise ConnectionError(message)

    with pytest.raises(ConnectionError):
        asyncio.run(_through(LazyCronMiddleware(fails, cron)))
    assert watcher_of(cron)._threads().is_closed


def test_what_an_app_raised_on_its_lifespan_can_be_read(
    cron: LazyCron, caplog: pytest.LogCaptureFixture
) -> None:
    """As a warning where it knows none, as an error where it died later."""
    asyncio.run(_through(LazyCronMiddleware(raises, cron)))
    asyncio.run(_through(LazyCronMiddleware(dies_early, cron)))
    found = [(one.levelname, one.__dict__["action"]) for one in caplog.records]
    assert found == [("WARNING", "lifespan_answered"), ("ERROR", "lifespan_failed")]


def test_the_drain_comes_before_the_app_closes_what_tasks_use(
    cron: LazyCron, clock: ManualClock
) -> None:
    """An async task on the loop ends while the app's own things are still open."""
    is_open: dict[str, bool] = {"service": True}
    found: list[bool] = []
    begun, go = threading.Event(), threading.Event()

    @cron.task(every="minute")
    async def uses() -> None:
        begun.set()
        await asyncio.to_thread(go.wait, DEADLINE)
        found.append(is_open["service"])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await hello(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        is_open["service"] = False
        await send({"type": "lifespan.shutdown.complete"})

    async def run() -> list[str]:
        middleware = LazyCronMiddleware(app, cron)
        lifespan = Lifespan(middleware)
        await lifespan.begin()
        await call(middleware, scope_of("/"))
        await asyncio.to_thread(at_rest, cron)
        clock.tick(60)
        await call(middleware, scope_of("/"))
        await asyncio.to_thread(begun.wait, DEADLINE)
        ending = asyncio.ensure_future(lifespan.say("shutdown"))
        await asyncio.to_thread(until, lambda: watcher_of(cron)._threads().is_closed)
        go.set()
        await ending
        await lifespan.task
        return lifespan.sent

    assert asyncio.run(run())[-1] == "lifespan.shutdown.complete"
    assert found == [True]
    assert cron.history()[0].status == "ok"


def test_an_app_served_again_in_the_same_process_ticks_again(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Test suites enter a client many times."""
    runs: list[int] = []
    cron.task(every="minute", name="minute")(lambda: runs.append(1))
    app = LazyCronMiddleware(
        Starlette(routes=[Route("/", lambda _: PlainTextResponse("home"))]), cron
    )
    for number in range(3):
        with TestClient(app) as client:
            assert client.get("/").text == "home"
            until(partial(has, runs, number))
            at_rest(cron)
        clock.tick(60)


def test_a_drain_that_fails_lets_the_app_end(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""

    def fails(_: Watcher) -> None:
        message = "no"
        raise OSError(message)

    monkeypatch.setattr(Watcher, "drain", fails)
    middleware = LazyCronMiddleware(answers, cron)
    assert asyncio.run(_through(middleware))[-1] == "lifespan.shutdown.complete"
    assert "lazycron could not drain" in caplog.text
