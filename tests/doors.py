"""One task behind every door, on a clock that many processes share."""

import asyncio
import mmap
import os
import struct
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lazycron import LazyCron, Run
from lazycron.asgi import App, LazyCronMiddleware, Message, Receive, Scope, Send
from lazycron.web.watcher import watcher_of
from tests.processes import Wire

ROOT = Path(__file__).parent.parent
SECRET = "a secret of the tests, long enough"


class SharedClock:
    """A clock in eight bytes of a file: whoever sets it, sets it for all processes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def set(self, moment: datetime) -> None:
        """Show another moment."""
        struct.pack_into("d", self._memory, 0, moment.timestamp())

    def now(self) -> datetime:
        """Return the moment it shows."""
        return datetime.fromtimestamp(self.monotonic(), UTC)

    def monotonic(self) -> float:
        """Return the same moment in seconds; nobody sets this clock back."""
        seconds: float = struct.unpack_from("d", self._memory)[0]
        return seconds


def make_from(folder: Path, url: str) -> LazyCron:
    """Make a LazyCron whose one task, `beat`, writes a line for each of its runs."""
    cron = LazyCron(
        url, secret=SECRET, state_file=folder / "state.json", clock=SharedClock(folder / "clock")
    )

    @cron.task(every="1s")
    def beat(run: Run) -> None:
        line = f"{run.scheduled_for:%H:%M:%S.%f} {run.trigger}\n"
        descriptor = os.open(folder / "beats", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    return cron


def make() -> LazyCron:
    """Make it as the environment says: what the command line calls."""
    return make_from(Path(os.environ["DOORS_FOLDER"]), os.environ["DOORS_URL"])


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as an app that knows nothing of lazycron does."""
    del receive
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def request(app: App, path: str = "/", method: str = "GET") -> int:
    """Send an ASGI app a request as a server does; return the status."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "root_path": "",
    }
    await app(scope, receive, send)
    return int(sent[0]["status"])


def visitors(wire: Wire, folder: str, url: str) -> None:
    """Be a web process with visitors, until told to stop."""
    cron = make_from(Path(folder), url)
    app = LazyCronMiddleware(hello, cron)

    async def drive() -> int:
        served = 0
        while not wire.pipe.poll():
            assert await request(app) == 200
            served += 1
            await asyncio.sleep(0.002)
        await asyncio.to_thread(watcher_of(cron).drain)
        return served

    wire.say("ready")
    wire.say("served", asyncio.run(drive()))


def monitor(wire: Wire, folder: str, url: str) -> None:
    """Be a web process whose cron URL is hit all the time, until told to stop."""
    cron = make_from(Path(folder), url)
    app = LazyCronMiddleware(hello, cron)

    async def drive() -> int:
        served = 0
        while not wire.pipe.poll():
            assert await request(app, f"/lazycron/{cron.cron_token}") in (200, 202)
            served += 1
            await asyncio.sleep(0.002)
        await asyncio.to_thread(watcher_of(cron).drain)
        return served

    wire.say("ready")
    wire.say("served", asyncio.run(drive()))


def commands(wire: Wire, folder: str, url: str) -> None:
    """Call `lazycron run` again and again, until told to stop."""
    command = [sys.executable, "-m", "lazycron", "--app", "tests.doors:make", "run"]
    environment = os.environ | {"DOORS_FOLDER": folder, "DOORS_URL": url}
    served = 0
    wire.say("ready")
    while not wire.pipe.poll():
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        served += 1
    wire.say("served", served)
