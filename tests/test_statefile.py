"""The state file: a hint that is believed only where it can be, and never torn."""

import fcntl
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazycron import locks
from lazycron.files import lock_of, log_of, private_folder
from lazycron.logfile import LogFile
from lazycron.statefile import State, StateFile
from lazycron.testing import ManualClock

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
STATE = State(
    next=NOW + timedelta(minutes=5),
    traffic=True,
    admin=False,
    loop_at=NOW - timedelta(seconds=10),
    settings_at=NOW - timedelta(seconds=3),
    written_at=NOW,
)
GOOD: dict[str, Any] = {
    "lazycron": 1,
    "next": 1767268800.0,
    "traffic": True,
    "admin": True,
    "loop_at": None,
    "settings_at": 1767268800.0,
    "written_at": 1767268800.0,
}


@pytest.fixture
def clock() -> ManualClock:
    """A clock that shows noon."""
    return ManualClock(NOW)


@pytest.fixture
def file(tmp_path: Path, clock: ManualClock) -> StateFile:
    """A state file that is not there yet."""
    return StateFile(tmp_path / "state.lazycron.json", clock.monotonic)


def write(file: StateFile, state: State) -> None:
    """Write a state."""
    file.refresh(lambda _: state)


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return sorted(one.name for one in folder.iterdir())


def python(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start another Python process."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )


# what it says


def test_what_was_written_is_read_by_every_process(file: StateFile, clock: ManualClock) -> None:
    """All of it, to the microsecond."""
    state = replace(STATE, next=NOW + timedelta(microseconds=1))
    write(file, state)
    assert StateFile(file.path, clock.monotonic).read(NOW) == state


def test_nothing_ever_due_is_said_too(file: StateFile) -> None:
    """And no loop has ever been seen."""
    write(file, replace(STATE, next=None, loop_at=None))
    found = file.read(NOW)
    assert found is not None
    assert (found.next, found.loop_at) == (None, None)
    assert not found.is_due(NOW + timedelta(days=3653))


def test_it_is_due_from_its_next_moment_on() -> None:
    """That moment included."""
    due = NOW + timedelta(minutes=5)
    assert not STATE.is_due(due - timedelta(microseconds=1))
    assert STATE.is_due(due)


def test_the_file_is_json_in_epoch_seconds_that_only_its_owner_reads(file: StateFile) -> None:
    """A person can read it, too."""
    write(file, STATE)
    assert json.loads(file.path.read_text()) == {
        "lazycron": 1,
        "next": 1767269100.0,
        "traffic": True,
        "admin": False,
        "loop_at": 1767268790.0,
        "settings_at": 1767268797.0,
        "written_at": 1767268800.0,
    }
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_missing_folders_are_made(tmp_path: Path, clock: ManualClock) -> None:
    """On the first write."""
    file = StateFile(tmp_path / "a" / "b" / "state.json", clock.monotonic)
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.read(NOW) == STATE
    assert file.problem is None


def test_writing_leaves_nothing_else_but_the_lock_behind(file: StateFile) -> None:
    """No temporary files."""
    write(file, STATE)
    write(file, replace(STATE, next=None))
    assert names(file.path.parent) == ["state.lazycron.json", "state.lazycron.lock"]


# what is not believed


CHANGES: list[dict[str, Any]] = [
    {"lazycron": 2},
    {"lazycron": None},
    {"next": "soon"},
    {"next": True},
    {"next": [1767268800]},
    {"next": 1e300},
    {"next": 10**1000},
    {"next": float("nan")},
    {"next": float("inf")},
    {"traffic": 1},
    {"traffic": None},
    {"admin": "on"},
    {"loop_at": {}},
    {"settings_at": None},
    {"written_at": None},
    {"written_at": "2026-01-01"},
    {"written_at": -1e20},
]
UNBELIEVABLE = [
    b"",
    b" ",
    b'{"lazycron": 1, "next": 17672',
    b"\x00\xff\xfe\x80binary",
    b"\xff\xfe{\x00}\x00",
    b"[]",
    b"{}",
    b"null",
    b"true",
    b"5",
    b'"text"',
    b"[" * 4000,
    *(json.dumps(GOOD | change).encode() for change in CHANGES),
    *(
        json.dumps({key: value for key, value in GOOD.items() if key != missing}).encode()
        for missing in GOOD
    ),
    json.dumps(GOOD).encode() + b" " * (10 * 1024 * 1024),
]


@pytest.mark.parametrize("content", UNBELIEVABLE, ids=range(len(UNBELIEVABLE)))
def test_a_file_that_is_not_ours_says_nothing_and_is_replaced(
    file: StateFile, content: bytes
) -> None:
    """Empty, torn, binary, foreign, of wrong types, incomplete, ten megabytes."""
    file.path.write_bytes(content)
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.read(NOW) == STATE
    assert file.problem is None


def test_the_good_form_of_those_is_believed(file: StateFile) -> None:
    """Otherwise the test above would say little."""
    file.path.write_text(json.dumps(GOOD))
    assert file.read(NOW) is not None


@given(st.binary(max_size=200))
def test_no_content_makes_reading_fail(file: StateFile, content: bytes) -> None:
    """Whatever the bytes are."""
    file.path.write_bytes(content)
    assert file.read(NOW) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), JSON_VALUES))
def test_no_values_make_reading_or_comparing_fail(file: StateFile, changes: dict[str, Any]) -> None:
    """Whatever stands where a number or a switch should."""
    file.path.write_text(json.dumps(GOOD | changes))
    found = file.read(NOW)
    if found is not None:
        assert found.is_due(NOW) in (True, False)


@pytest.mark.parametrize("age", [0, 30, 60])
def test_a_file_of_up_to_a_minute_is_believed(file: StateFile, age: int) -> None:
    """Sixty seconds included."""
    write(file, STATE)
    assert file.read(NOW + timedelta(seconds=age)) == STATE


def test_a_file_older_than_a_minute_is_not_believed(file: StateFile) -> None:
    """The database is asked; the file still says what it said."""
    write(file, STATE)
    assert file.read(NOW + timedelta(seconds=60, microseconds=1)) is None
    assert file.peek() == STATE


@pytest.mark.parametrize("ahead", [timedelta(seconds=2), timedelta(hours=1), timedelta(days=365)])
def test_a_file_from_the_future_is_not_believed(file: StateFile, ahead: timedelta) -> None:
    """ "Nothing due", written under a clock that has since gone back, would silence everybody."""
    write(file, replace(STATE, next=None))
    assert file.read(NOW - ahead) is None


def test_a_file_from_the_future_is_rewritten(file: StateFile) -> None:
    """Although it says the same."""
    write(file, STATE)
    earlier = replace(STATE, written_at=NOW - timedelta(seconds=10))
    write(file, earlier)
    assert file.read(NOW - timedelta(seconds=10)) == earlier


def test_the_age_is_the_files_own_stamp_not_its_mtime(file: StateFile) -> None:
    """A copied or touched file is as old as what it says."""
    write(file, STATE)
    os.utime(file.path, (0, 0))
    assert file.read(NOW) == STATE
    late = (NOW + timedelta(days=1)).timestamp()
    os.utime(file.path, (late, late))
    assert file.read(NOW + timedelta(days=1)) is None


# what is in its place


def test_a_folder_in_its_place_is_a_problem_that_stops_nobody(file: StateFile) -> None:
    """The problem names the path; temporary files are cleared away."""
    file.path.mkdir()
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.problem == f"state file {file.path}: Is a directory"
    assert names(file.path.parent) == ["state.lazycron.json", "state.lazycron.lock"]


def test_a_dangling_link_in_its_place_is_replaced(file: StateFile, tmp_path: Path) -> None:
    """Nothing is written where it points."""
    file.path.symlink_to(tmp_path / "nowhere")
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.read(NOW) == STATE
    assert not file.path.is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_a_link_to_itself_in_its_place_is_replaced(file: StateFile) -> None:
    """Too many levels."""
    file.path.symlink_to(file.path)
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.read(NOW) == STATE


def test_a_fifo_in_its_place_holds_nobody_and_is_replaced(file: StateFile) -> None:
    """Neither without a writer nor with one that says nothing."""
    os.mkfifo(file.path)
    assert file.read(NOW) is None
    writer = os.open(file.path, os.O_RDWR)
    try:
        assert file.read(NOW) is None
    finally:
        os.close(writer)
    write(file, STATE)
    assert file.read(NOW) == STATE


def test_a_file_that_cannot_be_read_says_nothing(file: StateFile) -> None:
    """Not even by root: the memory of a process begins with a page that is not there."""
    file.path.symlink_to("/proc/self/mem")
    assert file.read(NOW) is None
    write(file, STATE)
    assert file.read(NOW) == STATE


def test_a_folder_in_the_locks_place_stops_nobody(file: StateFile) -> None:
    """Written without the lock."""
    file.path.with_name("state.lazycron.lock").mkdir()
    write(file, STATE)
    assert file.read(NOW) == STATE


# a place that the app chose


@pytest.fixture
def given_file(tmp_path: Path, clock: ManualClock) -> StateFile:
    """A state file at a place whose name is not lazycron's."""
    return StateFile(tmp_path / "app.json", clock.monotonic)


THEIRS = [
    b'{"users": 3}\n',
    b'{"lazycron": {"database": "x"}}\n',
    b'{"lazycron": 1}',
    b"SQLite format 3\x00" + b"\x00" * 4000,
    b"text",
    b" " * 4096 + b"\ntext",
]


@pytest.mark.parametrize("content", THEIRS, ids=range(len(THEIRS)))
def test_another_apps_file_is_left_alone(given_file: StateFile, content: bytes) -> None:
    """Nothing stands beside it but the lock; the process remembers for itself and says so."""
    given_file.path.write_bytes(content)
    write(given_file, STATE)
    assert given_file.path.read_bytes() == content
    assert given_file.problem == (
        f"state file {given_file.path}: it is no state file, so it is left alone: pass another "
        "state_file="
    )
    assert given_file.read(NOW) == STATE
    assert names(given_file.path.parent) == ["app.json", "app.json.lazycron.lock"]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 300, b'{"lazycron": 1, "next": 1767', b'{"lazycron": 2, "x": 1}']
)
def test_what_a_crash_or_another_version_left_there_is_replaced(
    given_file: StateFile, content: bytes
) -> None:
    """Empty, zeros, torn, of another format."""
    given_file.path.write_bytes(content)
    write(given_file, STATE)
    assert given_file.problem is None
    assert given_file.read(NOW) == STATE


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo", "hard link"])
@pytest.mark.usefixtures("nofollow")
def test_what_is_no_plain_file_is_left_alone(given_file: StateFile, kind: str) -> None:
    """`/dev/null`, say, or a link of the app's own."""
    path = given_file.path
    target = path.with_name("target")
    if kind != "dangling link":
        target.write_text(json.dumps(GOOD))
    match kind:
        case "link" | "dangling link":
            path.symlink_to(target)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.hardlink_to(target)
    before = path.lstat()
    assert given_file.read(NOW) is None
    write(given_file, STATE)
    assert (given_file.problem or "").startswith(f"state file {path}: ")
    assert given_file.read(NOW) == STATE
    assert path.lstat().st_ino == before.st_ino
    assert target.exists() == (kind != "dangling link")
    assert not target.exists() or json.loads(target.read_text()) == GOOD


@pytest.mark.usefixtures("nofollow")
def test_a_link_in_the_locks_place_is_not_followed(file: StateFile, tmp_path: Path) -> None:
    """What it points at is not made; the file is written without the lock."""
    lock_of(file.path).symlink_to(tmp_path / "target")
    write(file, STATE)
    assert file.read(NOW) == STATE
    assert not (tmp_path / "target").exists()


def test_another_installations_file_is_neither_believed_nor_replaced_while_it_is_in_use(
    given_file: StateFile, clock: ManualClock
) -> None:
    """Two LazyCrons with one state_file and two databases; the first keeps it."""
    other = StateFile(given_file.path, clock.monotonic)
    given_file.belong_to("first")
    other.belong_to("second")
    mine = replace(STATE, installation="first")
    write(given_file, mine)
    assert other.read(NOW) is None
    theirs = replace(
        STATE, next=None, installation="second", written_at=NOW + timedelta(seconds=60)
    )
    write(other, theirs)
    assert other.problem == (
        f"state file {other.path}: another installation uses it: pass each its own state_file="
    )
    assert given_file.read(NOW) == mine
    write(other, replace(theirs, written_at=NOW + timedelta(seconds=61)))
    assert other.problem is None
    assert given_file.peek() is None


def test_the_files_beside_a_state_file_are_named_so_that_they_are_nobody_elses() -> None:
    """Whatever the state file's name is; two state files share none."""
    found = [Path(name) for name in ("app.json", "app", "state.log", "shop.db.lazycron.json")]
    assert [log_of(path).name for path in found] == [
        "app.json.lazycron.log",
        "app.lazycron.log",
        "state.log.lazycron.log",
        "shop.db.lazycron.log",
    ]
    assert [lock_of(path).name for path in found] == [
        "app.json.lazycron.lock",
        "app.lazycron.lock",
        "state.log.lazycron.lock",
        "shop.db.lazycron.lock",
    ]


# where it cannot be written


@pytest.fixture
def unwritable(tmp_path: Path, clock: ManualClock) -> StateFile:
    """A state file whose folder cannot be made: a file is in its place."""
    (tmp_path / "file").touch()
    return StateFile(tmp_path / "file" / "state.json", clock.monotonic)


def test_where_it_cannot_be_written_a_process_remembers_for_five_seconds(
    unwritable: StateFile, clock: ManualClock
) -> None:
    """Then it asks the database again."""
    assert unwritable.read(NOW) is None
    write(unwritable, STATE)
    clock.tick(4.9)
    assert unwritable.read(clock.now()) == STATE
    clock.tick(0.1)
    assert unwritable.read(clock.now()) is None
    assert unwritable.problem == f"state file {unwritable.path}: File exists"


def test_what_a_process_remembers_does_not_depend_on_the_wall_clock(
    unwritable: StateFile, clock: ManualClock
) -> None:
    """A clock set back lengthens nothing."""
    write(unwritable, STATE)
    clock.jump(timedelta(hours=-1))
    clock.tick(5)
    assert unwritable.read(clock.now()) is None


def test_a_process_that_cannot_write_trusts_its_own_newer_knowledge(
    file: StateFile, clock: ManualClock
) -> None:
    """Another user's process has written an hour; this one has just seen something due."""
    file.path.write_text(json.dumps(GOOD | {"next": NOW.timestamp() + 3600}))
    _make_unwritable(file)
    seen = replace(STATE, next=NOW, written_at=NOW + timedelta(seconds=1))
    write(file, seen)
    clock.tick(2)
    assert file.read(clock.now()) == seen


def test_a_process_that_cannot_write_trusts_a_newer_file(
    file: StateFile, clock: ManualClock
) -> None:
    """Somebody who can has looked since."""
    _make_unwritable(file)
    write(file, STATE)
    clock.tick(2)
    file.path.write_text(json.dumps(GOOD | {"written_at": clock.now().timestamp()}))
    found = file.read(clock.now())
    assert found is not None
    assert found.written_at == clock.now()


def _make_unwritable(file: StateFile) -> None:
    # Root may write everywhere, but not beside a file whose name is as long as a name can be.
    file.path.unlink(missing_ok=True)
    file.path = file.path.with_name("s" * 255)
    file.path.write_text(json.dumps(GOOD | {"next": NOW.timestamp() + 3600}))


def test_a_problem_is_over_when_the_file_can_be_written_again(
    unwritable: StateFile, tmp_path: Path
) -> None:
    """It is what `check()` shows."""
    write(unwritable, STATE)
    (tmp_path / "file").unlink()
    write(unwritable, STATE)
    assert unwritable.problem is None
    assert unwritable.read(NOW) == STATE


def test_a_full_disk_leaves_the_old_file_whole(file: StateFile) -> None:
    """A process that may write ten bytes: a problem, no torn file, nothing left behind."""
    write(file, STATE)
    before = file.path.read_bytes()
    process = python(
        """
        import resource, sys, time
        from dataclasses import replace
        from pathlib import Path
        from lazycron.statefile import StateFile
        from tests.test_statefile import STATE, write

        file = StateFile(Path(sys.argv[1]), time.monotonic)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        write(file, replace(STATE, next=None))
        sys.stdout.write(file.problem or "no problem")
        """,
        str(file.path),
    )
    said, _ = process.communicate()
    assert said == f"state file {file.path}: No space left on device"
    assert file.path.read_bytes() == before
    assert names(file.path.parent) == ["state.lazycron.json", "state.lazycron.lock"]


# when it is not rewritten


def is_rewritten(file: StateFile, state: State) -> bool:
    """Write a state over STATE; tell whether the file was replaced."""
    write(file, STATE)
    before = file.path.stat().st_ino
    with file.path.open("rb"):  # keeps the inode from being used again
        write(file, state)
        return file.path.stat().st_ino != before


def test_it_is_not_rewritten_when_it_says_the_same_and_is_young(file: StateFile) -> None:
    """Younger than half a minute."""
    later = replace(STATE, written_at=NOW + timedelta(seconds=29.9))
    assert not is_rewritten(file, later)
    assert file.peek() == STATE


@pytest.mark.parametrize(
    "change",
    [
        {"written_at": NOW + timedelta(seconds=30)},
        {"written_at": NOW - timedelta(microseconds=1)},
        {"next": NOW + timedelta(minutes=6)},
        {"next": NOW},
        {"next": None},
        {"traffic": False},
        {"admin": True},
        {"loop_at": None},
        {"settings_at": NOW},
    ],
    ids=range(9),
)
def test_it_is_rewritten_when_it_is_old_or_something_has_changed(
    file: StateFile, change: dict[str, Any]
) -> None:
    """Half a minute, or any value."""
    assert is_rewritten(file, replace(STATE, **change))
    assert file.peek() == replace(STATE, **change)


def test_two_moments_that_are_due_already_say_the_same(file: StateFile) -> None:
    """A busy queue does not rewrite the file at every tick."""
    write(file, replace(STATE, next=NOW - timedelta(seconds=5)))
    before = file.path.read_bytes()
    write(file, replace(STATE, next=NOW - timedelta(seconds=4), written_at=NOW))
    assert file.path.read_bytes() == before


def test_whoever_rewrites_is_given_what_was_there(file: StateFile) -> None:
    """However old: the switches in it may still count."""
    write(file, STATE)
    later = replace(STATE, written_at=NOW + timedelta(days=1))
    seen: list[State | None] = []

    def ask(old: State | None) -> State:
        seen.append(old)
        return later

    file.refresh(ask)
    assert seen == [STATE]


# many at once


def test_readers_never_see_a_torn_file(file: StateFile) -> None:
    """Two processes read while two threads write."""
    write(file, STATE)
    program = """
        import sys, time
        from pathlib import Path
        from lazycron.statefile import StateFile

        file = StateFile(Path(sys.argv[1]), time.monotonic)
        print("ready", flush=True)
        reads = torn = 0
        while True:
            found = file.peek()
            reads += 1
            torn += found is None
            if found is not None and found.loop_at is None:
                break
        print(reads, torn)
        """
    readers = [python(program, str(file.path)) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"

    def write_many(minutes: int) -> None:
        for number in range(200):
            write(file, replace(STATE, next=NOW + timedelta(minutes=minutes, seconds=number)))

    writers = [threading.Thread(target=write_many, args=(m,)) for m in (1, 1000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    write(file, replace(STATE, loop_at=None))
    for reader in readers:
        said, _ = reader.communicate()
        reads, torn = map(int, said.split())
        assert (torn, reads > 0) == (0, True)


def test_a_slow_writer_that_knew_less_cannot_hide_a_wake_up(
    file: StateFile, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one has read "nothing due" when a row becomes due and a fast one rewrites."""
    monkeypatch.setattr(locks, "LOCK_PATIENCE", 30.0)
    has_read, may_write, fast_tries = threading.Event(), threading.Event(), threading.Event()
    database: dict[str, datetime | None] = {"next": None}

    def slowly(_: State | None) -> State:
        known = replace(STATE, next=database["next"])
        has_read.set()
        assert may_write.wait(5)
        return known

    slow = threading.Thread(target=file.refresh, args=(slowly,))
    slow.start()
    assert has_read.wait(5)

    real = locks._lock_within

    def noted(descriptor: int, seconds: float, *, shared: bool) -> bool:
        fast_tries.set()
        return real(descriptor, seconds, shared=shared)

    monkeypatch.setattr(locks, "_lock_within", noted)
    database["next"] = NOW  # committed
    other = StateFile(file.path, clock.monotonic)
    fast = threading.Thread(
        target=other.refresh, args=(lambda _: replace(STATE, next=database["next"]),)
    )
    fast.start()
    # Without a lock around the question the fast one has written by now, or will before the slow.
    assert fast_tries.wait(5)
    may_write.set()
    slow.join()
    fast.join()
    found = file.read(NOW)
    assert found is not None
    assert found.next == NOW


@contextmanager
def lock_held_elsewhere(file: StateFile) -> Iterator[None]:
    """Let another process hold the file's lock."""
    process = python(
        """
        import fcntl, os, sys

        descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
        """,
        str(lock_of(file.path)),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate()


def test_a_lock_that_somebody_else_holds_is_waited_for_a_fifth_of_a_second(
    file: StateFile,
) -> None:
    """Its holder's database hangs: the file is written all the same."""
    assert locks.LOCK_PATIENCE == 0.2
    with lock_held_elsewhere(file):
        write(file, STATE)
        assert file.read(NOW) == STATE


def test_who_goes_on_without_the_lock_trusts_what_it_knew_for_five_seconds(
    file: StateFile, clock: ManualClock
) -> None:
    """The holder, who knew less, writes later: this process looks at once, all soon."""
    holder = StateFile(file.path, clock.monotonic)
    with lock_held_elsewhere(file):
        write(file, replace(STATE, next=NOW))
    holder._write(replace(STATE, next=None))
    found = file.read(NOW)
    assert found is not None
    assert found.next == NOW
    clock.tick(5)
    found = file.read(clock.now())
    assert found is not None
    assert found.next is None


def test_who_went_on_without_the_lock_believes_a_file_that_is_sooner(
    file: StateFile, clock: ManualClock
) -> None:
    """Looking too often harms nobody; and with the lock again the file alone counts."""
    other = StateFile(file.path, clock.monotonic)
    with lock_held_elsewhere(file):
        write(file, STATE)
        other._write(replace(STATE, next=NOW))
    found = file.read(NOW)
    assert found is not None
    assert found.next == NOW
    write(file, STATE)
    write(other, replace(STATE, next=None))
    found = file.read(NOW)
    assert found is not None
    assert found.next is None


def is_free(lock: Path) -> bool:
    """Tell whether nobody holds a lock."""
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_the_lock_is_held_while_the_database_is_asked_and_no_longer(file: StateFile) -> None:
    """Also where asking fails; then the file is left as it was."""
    lock = file.path.with_name("state.lazycron.lock")
    free: list[bool] = []

    def ask(_: State | None) -> State:
        free.append(is_free(lock))
        return STATE

    file.refresh(ask)
    free.append(is_free(lock))

    def failing(_: State | None) -> State:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        file.refresh(failing)
    free.append(is_free(lock))
    assert free == [False, True, True]
    assert file.read(NOW) == STATE


def test_asking_that_fails_without_the_lock_says_why(unwritable: StateFile) -> None:
    """The database's error, not the file's."""

    def failing(_: State | None) -> State:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        unwritable.refresh(failing)


def test_a_fork_in_the_middle_of_the_hold_leaves_neither_side_blocked(file: StateFile) -> None:
    """The child has a copy of the descriptor, and keeps it."""
    process = python(
        """
        import os, sys, time
        from dataclasses import replace
        from pathlib import Path
        from lazycron import locks
        from lazycron.files import lock_of
        from lazycron.statefile import StateFile
        from tests.test_statefile import STATE, is_free, write

        locks.LOCK_PATIENCE = 30.0
        path = Path(sys.argv[1])
        lock = lock_of(path)
        go_read, go_write = os.pipe()
        children = []

        def forking(old):
            child = os.fork()
            if child == 0:
                os.close(go_write)  # so that a parent that dies is noticed
                os.read(go_read, 1)  # the parent is through
                code = 0 if is_free(lock) else 1
                write(StateFile(path, time.monotonic), replace(STATE, next=None))
                os._exit(code)
            children.append(child)
            return STATE

        StateFile(path, time.monotonic).refresh(forking)
        free = is_free(lock)  # while the child is alive
        os.write(go_write, b"!")
        _, status = os.waitpid(children[0], 0)
        print(free, os.waitstatus_to_exitcode(status))
        """,
        str(file.path),
    )
    said, _ = process.communicate()
    assert said == "True 0\n"
    found = file.peek()
    assert found is not None
    assert found.next is None


# where it lies when nobody says


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temp folder of the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def private(temp: Path, clock: ManualClock) -> StateFile:
    """A state file in the user's folder in the temp folder."""
    assert private_folder() == temp / f"lazycron-{os.getuid()}"
    return StateFile(private_folder() / "s.lazycron.json", clock.monotonic, place="private")


def test_the_private_folder_is_made_by_the_first_write_and_is_the_users_own(
    private: StateFile,
) -> None:
    """Mode 0700, after a cleaner of the temp folder has taken it away, too."""
    for _ in range(2):
        write(private, STATE)
        assert private.problem is None
        assert private.path.parent.stat().st_mode & 0o777 == 0o700
        for one in private.path.parent.iterdir():
            one.unlink()
        private.path.parent.rmdir()


@pytest.mark.parametrize("kind", ["loose folder", "link to a folder", "dangling link", "file"])
def test_what_others_put_in_the_private_folders_place_is_not_used(
    private: StateFile, temp: Path, kind: str
) -> None:
    """Nothing is believed, written or made; the process remembers for itself and says so."""
    own, theirs = private.path.parent, temp / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / private.path.name).write_text(json.dumps(GOOD))
    before = (theirs / private.path.name).read_bytes()
    match kind:
        case "loose folder":
            theirs.rename(own)
            own.chmod(0o770)
            theirs = own
        case "link to a folder":
            own.symlink_to(theirs)
        case "dangling link":
            own.symlink_to(temp / "nowhere")
        case _:
            own.touch()
    assert private.read(NOW) is None
    write(private, STATE)
    log = LogFile(log_of(private.path))
    log.note(NOW, "nightly", "ok", 1, "Done.")
    for problem in (private.problem, private.trouble, log.problem):
        assert problem is not None
        assert f"the folder {own} is not this user's alone" in problem
    assert private.read(NOW) == STATE
    assert names(theirs) == [private.path.name]
    assert (theirs / private.path.name).read_bytes() == before
    assert names(temp) == sorted({own.name, theirs.name})


def test_a_folder_that_belongs_to_another_user_is_not_used(
    temp: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """This process is another user's from here on."""
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    private_folder().mkdir(mode=0o700)
    file = StateFile(private_folder() / "s.lazycron.json", clock.monotonic)
    write(file, STATE)
    assert "is not this user's alone" in (file.problem or "")
    assert names(temp) == ["lazycron-4000000"]


def test_a_temp_folder_in_which_nothing_can_be_made_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """The state file cannot be written then, and says so."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    (tmp_path / f"lazycron-{os.getuid()}").touch()
    file = StateFile(private_folder() / "state.json", clock.monotonic)
    write(file, STATE)
    assert file.problem is not None
    assert file.read(NOW) == STATE
