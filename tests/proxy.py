"""A TCP proxy that treats real connections badly: refuses, cuts, stalls and swallows answers."""

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from sqlalchemy import URL

Mode = Literal["pass", "refuse", "stall"]
DEFAULT_PORTS = {"postgresql": 5432, "mariadb": 3306, "mysql": 3306}
CHUNK = 65536
# Closing with a linger of zero sends a reset: what a server's crash looks like.
RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a port of its own and passes everything on, until told otherwise.

    `attempts` counts the connections that were asked for, `refused` ones included.
    """

    def __init__(self, url: URL) -> None:
        self._target = (url.host or "127.0.0.1", url.port or DEFAULT_PORTS[url.get_backend_name()])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        self.attempts = 0
        self.swallowed = threading.Event()
        self._mode: Mode = "pass"
        self._changed = threading.Condition()
        self._links: set[_Link] = set()
        self._swallows: Callable[[bytes], bool] | None = None
        self._is_closed = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    # what the network does

    def accept(self) -> None:
        """Pass everything on; what has stalled moves again."""
        self._turn("pass")

    def refuse(self) -> None:
        """Reset every connection, those there are and those to come."""
        self._turn("refuse")
        self.cut()

    def stall(self) -> None:
        """Pass nothing on any more, in either direction; connections stay open."""
        self._turn("stall")

    def cut(self) -> None:
        """Reset the connections there are."""
        with self._changed:
            links = list(self._links)
        for link in links:
            link.cut()

    def swallow_answer(self, to: Callable[[bytes], bool]) -> None:
        """Pass on the next request for which `to` is true, and cut instead of its answer.

        The answer's first bytes have arrived by then: the server has done what it was asked.
        """
        self.swallowed.clear()
        self._swallows = to

    def close(self) -> None:
        """Stop listening and reset what is open."""
        self._is_closed = True
        self.refuse()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    # how

    def _turn(self, mode: Mode) -> None:
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.attempts += 1
            link = _Link(client)
            if self._mode == "refuse":
                link.cut()
                continue
            with self._changed:
                self._links.add(link)
            threading.Thread(target=self._serve, args=(link,), name="link", daemon=True).start()

    def _serve(self, link: "_Link") -> None:
        try:
            self._wait_while_stalled()
            link.server = socket.create_connection(self._target)
            while link.pass_on(self._before_passing):
                pass
        except (OSError, ValueError):  # select refuses a socket that was closed meanwhile
            pass
        finally:
            link.cut()
            with self._changed:
                self._links.discard(link)

    def _wait_while_stalled(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._mode != "stall")

    def _before_passing(self, link: "_Link", data: bytes, *, to_server: bool) -> bool:
        """Say whether these bytes may pass; False cuts the link."""
        self._wait_while_stalled()
        if self._mode == "refuse":
            return False
        if to_server and self._swallows is not None and self._swallows(data):
            self._swallows = None
            link.swallows = True
        elif not to_server and link.swallows:
            self.swallowed.set()
            return False
        return True


Before = Callable[..., bool]


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.swallows = False
        self._lock = threading.Lock()

    def pass_on(self, before: Before) -> bool:
        """Pass on what has come from either side; False: one side is gone."""
        assert self.server is not None
        ready, _, _ = select.select([self.client, self.server], [], [])
        for one in ready:
            data = one.recv(CHUNK)
            to_server = one is self.client
            if not data or not before(self, data, to_server=to_server):
                return False
            (self.server if to_server else self.client).sendall(data)
        return True

    def cut(self) -> None:
        """Reset both sides."""
        with self._lock:
            for one in (self.client, self.server):
                if one is None:
                    continue
                with suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    one.shutdown(socket.SHUT_RDWR)
                with suppress(OSError):
                    one.close()


@contextmanager
def proxied(url: URL) -> Iterator[Proxy]:
    """Put a proxy before a server for the time of a block."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
