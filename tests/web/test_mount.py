"""The arguments of both middlewares."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from lazycron import LazyCron
from lazycron.asgi import LazyCronMiddleware as Asgi
from lazycron.errors import ConfigurationError
from lazycron.web.endpoint import Waiting
from lazycron.web.mount import Mount, is_below, to_mount
from lazycron.wsgi import LazyCronMiddleware as Wsgi
from tests.conftest import SECRET
from tests.edges import hello, hello_wsgi


def mounted(cron: LazyCron | None = None, **settings: Any) -> Mount:
    """Mount with defaults."""
    defaults: dict[str, Any] = {
        "path": "/lazycron",
        "admin_paths": (),
        "skip_paths": (),
        "tick_in": "thread",
        "traffic": None,
        "panel": None,
        "waiting": Waiting(0, 20),
    }
    return to_mount(hello, cron or LazyCron(secret=SECRET), **(defaults | settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": "lazycron"}, "path='lazycron'"),
        ({"path": "/"}, "path='/'"),
        ({"path": ""}, "path=''"),
        ({"path": "/größe"}, "ASCII"),
        ({"path": None}, "path=None"),
        ({"path": "/a?b"}, "path='/a?b'"),
        ({"path": "/a#"}, "path='/a#'"),
        ({"path": "/%41"}, "path='/%41'"),
        ({"path": "/a b"}, "path='/a b'"),
        ({"path": "/a\n"}, "path='/a\\n'"),
        ({"path": "/a/../b"}, "path='/a/../b'"),
        ({"path": "/a/."}, "path='/a/.'"),
        ({"path": "//a"}, "path='//a'"),
        ({"path": "/a//b"}, "path='/a//b'"),
        ({"admin_paths": 5}, "admin_paths=5: pass path prefixes"),
        ({"skip_paths": True}, "skip_paths=True: pass path prefixes"),
        ({"skip_paths": [None]}, "skip_paths=None"),
        ({"traffic": "x"}, "traffic='x': pass True, False or None"),
        ({"traffic": 1}, "traffic=1"),
        ({"admin_paths": ["admin"]}, "admin_paths='admin'"),
        ({"skip_paths": [3]}, "skip_paths=3"),
        ({"tick_in": "process"}, "tick_in='process'"),
        ({"panel": object()}, "panel="),
    ],
)
@pytest.mark.parametrize("edge", [Asgi, Wsgi], ids=["asgi", "wsgi"])
def test_a_bad_argument_is_named(
    edge: Callable[..., object], settings: dict[str, Any], said: str
) -> None:
    """With what is accepted, when the middleware is made and not in a request."""
    app = hello if edge is Asgi else hello_wsgi
    with pytest.raises(ConfigurationError) as caught:
        edge(app, LazyCron(), **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("edge", [Asgi, Wsgi], ids=["asgi", "wsgi"])
def test_the_lazycron_and_the_app_are_not_mixed_up(edge: Callable[..., object]) -> None:
    """The two arguments without a keyword are easily swapped."""
    with pytest.raises(ConfigurationError, match="pass the LazyCron whose tasks shall run"):
        edge(LazyCron(), hello)


@pytest.mark.parametrize("edge", [Asgi, Wsgi], ids=["asgi", "wsgi"])
@pytest.mark.parametrize("app", [None, "shop:app"])
def test_an_app_that_cannot_be_called_is_named(edge: Callable[..., object], app: object) -> None:
    """And not by each request."""
    with pytest.raises(ConfigurationError, match=f"app={app!r}: pass the app to wrap"):
        edge(app, LazyCron())


@pytest.mark.parametrize("path", ["/lazycron", "/lazycron/", "/a/b.c", "/~me/-_/a:b@c", "/.hidden"])
def test_a_path_that_requests_can_have_is_taken(path: str) -> None:
    """Without the slash at its end."""
    assert mounted(path=path).path == path.rstrip("/")


def test_no_prefixes_may_be_none() -> None:
    """As settings that were left out often are."""
    mount = mounted(admin_paths=None, skip_paths=None)
    assert (mount.admin_paths, mount.skip_paths) == ((), ())


def test_one_prefix_may_be_a_text() -> None:
    """A tuple of one is easily forgotten, and letters are no prefixes."""
    mount = mounted(admin_paths="/admin/", skip_paths=["/static"])
    assert mount.visitor("/admin/users") == "admin"
    assert mount.visitor("/static/site.css") is None
    assert mount.visitor("/") == "traffic"


def test_a_prefix_ends_at_a_slash() -> None:
    """`/admin` holds itself and what is below it, and not `/administer`; `/` holds everything."""
    assert is_below("/admin", ("/admin",))
    assert is_below("/admin/", ("/admin",))
    assert not is_below("/administer", ("/admin",))
    assert mounted(skip_paths=["/"]).visitor("/anything") is None


def test_skipping_is_stronger_than_the_admins() -> None:
    """Who says both means that nothing there triggers."""
    mount = mounted(admin_paths=["/admin"], skip_paths=["/admin/ping"])
    assert mount.visitor("/admin/ping") is None


def test_ticking_in_requests_leaves_visitors_alone_unless_told() -> None:
    """A visitor would wait for the tick."""
    assert mounted(tick_in="request").visitor("/") is None
    assert mounted(tick_in="request", traffic=True).visitor("/") == "traffic"
    assert mounted(traffic=False).visitor("/") is None


def test_a_secret_that_cannot_be_used_turns_the_url_off_and_shows_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes in the environment that are no UTF-8 must not break the first request."""
    caplog.set_level(logging.DEBUG, logger="lazycron")
    monkeypatch.setattr(
        LazyCron, "cron_tokens", property(lambda _: "a secret \udcff of 32 bytes".encode())
    )
    assert mounted().endpoint().paths == frozenset()
    assert "UnicodeEncodeError" in caplog.text
    assert "of 32 bytes" not in caplog.text
