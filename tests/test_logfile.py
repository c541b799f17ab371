"""The text log: one line a run, bounded, whole, and never a reason to fail."""

import os
import re
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lazycron import locks, logfile
from lazycron.logfile import LogFile
from lazycron.testing import ManualClock

NOW = datetime(2026, 11, 30, 3, 0, 7, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    """A log file that is not there yet."""
    return LogFile(tmp_path / "lazycron.log")


def note(log: LogFile, rest: str = "traffic  Done.") -> None:
    """Log a run."""
    log.note(NOW, "nightly", "ok", 412, rest)


def test_a_run_is_one_line(log: LogFile) -> None:
    """When, what, how, how long, by what trigger, and the message."""
    note(log)
    expected = "[2026-11-30 03:00:07] nightly  ok  412 ms  traffic  Done.\n"
    assert log.path.read_text() == expected
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_a_run_that_nobody_could_time_has_a_dash(log: LogFile) -> None:
    """It was lost."""
    log.note(NOW, "nightly", "lost", None, "traffic  Lost.")
    assert log.tail(1) == ["[2026-11-30 03:00:07] nightly  lost  -  traffic  Lost."]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x85", "\u2028"])
def test_a_message_of_several_lines_is_one_line(log: LogFile, end: str) -> None:
    """Whatever ends its lines: nobody can forge a run."""
    note(log, f"one{end}[2026-01-01 00:00:00] forged")
    lines = log.tail(10)
    assert len(lines) == 1
    assert lines[0].endswith("one [2026-01-01 00:00:00] forged")


def test_odd_characters_are_logged(log: LogFile) -> None:
    """Surrogates and NUL escaped, the rest as it is."""
    note(log, "😀 \udc80 \x00")
    assert log.tail(1)[0].endswith("😀 \\udc80 \\x00")


def test_what_a_terminal_would_obey_is_escaped(log: LogFile) -> None:
    """As the command line does: `tail` and `cat` show the file, too."""
    note(log, "\x1b[2J\x1b]0;owned\x07 a\tb \x9b31m \u202e größer 😀")
    assert log.tail(1)[0].endswith("\\x1b[2J\\x1b]0;owned\\x07 a\\tb \\x9b31m \\u202e größer 😀")
    assert b"\x1b" not in log.path.read_bytes()


def test_a_line_is_bounded(log: LogFile) -> None:
    """A thousand characters; both ends remain."""
    note(log, "x" * 100_000 + "end")
    (line,) = log.tail(1)
    assert len(line) == 1000
    assert line.startswith("[2026-11-30 03:00:07] nightly")
    assert line.endswith("end")


def test_the_newest_lines_come_first(log: LogFile) -> None:
    """As many as are asked for."""
    for number in range(5):
        note(log, str(number))
    assert [line[-1] for line in log.tail(3)] == ["4", "3", "2"]
    assert len(log.tail(100)) == 5
    assert log.tail(0) == log.tail(-1) == []


def test_beyond_100_kb_it_shortens_itself_to_its_last_200_lines(log: LogFile) -> None:
    """And goes on from there."""
    log.path.write_text("x" * 99 + "\n")
    for number in range(999):
        note(log, f"{number:<56}")  # lines of a hundred bytes, line end included
    assert log.path.stat().st_size == 100_000
    note(log, "the last straw")
    lines = log.tail(1000)
    assert len(lines) == 200
    assert lines[0].endswith("the last straw")
    assert re.search(r"  800 +$", lines[-1])
    note(log)
    assert len(log.tail(1000)) == 201


def test_two_hundred_long_lines_stay_although_they_are_beyond_100_kb(log: LogFile) -> None:
    """Lines are bounded, so the file is."""
    for number in range(300):
        note(log, f"{number} " + "é" * 2000)
    lines = log.tail(1000)
    assert len(lines) == 200
    assert " 299 é" in lines[0]
    assert log.path.stat().st_size < 500_000


def test_of_a_huge_file_only_the_end_is_read(log: LogFile) -> None:
    """Three gigabytes, most of them a hole, in a process that may not have so much memory."""
    program = """
        import os, resource, sys
        from pathlib import Path
        from lazycron.logfile import LogFile
        from tests.test_logfile import note

        log = LogFile(Path(sys.argv[1]))
        with log.path.open("wb") as file:
            file.seek(3_000_000_000)
            file.write(b"\\n" + b"".join(b"old %d\\n" % number for number in range(300)))
        resource.setrlimit(resource.RLIMIT_AS, (1_000_000_000, 1_000_000_000))
        print(log.tail(2), len(log.tail(10_000)))
        note(log)
        size = log.path.stat().st_size
        print(log.problem, len(log.tail(10_000)), log.tail(1000)[-1], size < 9999)
        """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(log.path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert ended.stdout == "['old 299', 'old 298'] 300\nNone 200 old 101 True\n"


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link"])
@pytest.mark.usefixtures("nofollow")
def test_what_was_planted_in_the_logs_place_leads_nowhere(
    log: LogFile, tmp_path: Path, kind: str
) -> None:
    """Its target is neither written, cut, made nor shown."""
    target = tmp_path / "target"
    if kind != "dangling link":
        target.write_text("theirs\n" * 50_000)
    if kind == "hard link":
        log.path.hardlink_to(target)
    else:
        log.path.symlink_to(target)
    note(log)
    assert log.problem is not None
    assert "link" in log.problem
    assert log.tail(5) == []
    assert target.exists() == (kind != "dangling link")
    assert not target.exists() or target.read_text() == "theirs\n" * 50_000


def test_missing_folders_are_made(tmp_path: Path) -> None:
    """With the first line."""
    log = LogFile(tmp_path / "a" / "b" / "lazycron.log")
    assert log.tail(1) == []
    note(log)
    assert len(log.tail(1)) == 1


@pytest.mark.parametrize("kind", ["folder", "fifo", "link to itself", "below a file"])
def test_what_cannot_be_written_is_a_problem_that_stops_nobody(log: LogFile, kind: str) -> None:
    """It is kept for `check()`; there is nothing to show."""
    match kind:
        case "folder":
            log.path.mkdir()
        case "fifo":
            os.mkfifo(log.path)
        case "link to itself":
            log.path.symlink_to(log.path)
        case _:
            log.path.touch()
            log = LogFile(log.path / "lazycron.log")
    note(log)
    assert log.problem is not None
    assert log.problem.startswith(f"log file {log.path}: ")
    assert log.tail(5) == []


def test_a_problem_is_over_when_a_line_could_be_written(log: LogFile) -> None:
    """The next run's, say; what could not be written comes with it."""
    log.path.mkdir()
    note(log, "first")
    log.path.rmdir()
    note(log, "second")
    assert log.problem is None
    assert [line.split()[-1] for line in log.tail(5)] == ["second", "first"]


def test_of_what_cannot_be_written_the_newest_waits(log: LogFile) -> None:
    """No more than the file would keep of it."""
    log.path.mkdir()
    for number in range(1000):
        note(log, str(number))
    log.path.rmdir()
    assert [line.split()[-1] for line in log.tail(1000)] == [str(n) for n in range(999, 799, -1)]


def test_of_a_full_disk_no_part_of_a_line_is_taken(log: LogFile) -> None:
    """What was not written waits, and is no stump for the next line to go on from."""
    program = """
        import resource, signal, sys
        from pathlib import Path
        from lazycron.logfile import LogFile
        from tests.test_logfile import note

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        log = LogFile(Path(sys.argv[1]))
        note(log, "first")
        size = log.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
        note(log, "second")
        print("No space" in log.problem, log.path.stat().st_size == size)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        note(log, "third")
        print(log.problem, [line.split()[-1] for line in log.tail(5)])
        """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(log.path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert ended.stdout == "True True\nNone ['third', 'second', 'first']\n"


# bursts


def burst(log: LogFile, number: int, name: str = "nightly") -> None:
    """Log a run that follows the last one at once."""
    log.note_in_burst(NOW, name, "ok", 0, f"traffic  {number}")


def written(log: LogFile) -> list[str]:
    """Read what is in the file."""
    return [line.split()[-1] for line in log.path.read_text().splitlines()]


@pytest.fixture
def bursting(log: LogFile, monkeypatch: pytest.MonkeyPatch) -> LogFile:
    """A log file whose first line of a burst has just been written; the burst goes on."""
    monkeypatch.setattr(logfile, "BURST", 3600.0)
    burst(log, 0)
    assert written(log) == ["0"]
    burst(log, 1)
    burst(log, 2)
    assert written(log) == ["0"]
    return log


def test_the_lines_of_a_burst_wait_for_its_end(bursting: LogFile) -> None:
    """The tick's, say."""
    bursting.flush()
    assert written(bursting) == ["0", "1", "2"]
    bursting.flush()
    assert written(bursting) == ["0", "1", "2"]


def test_one_more_run_of_the_burst_writes_nothing_and_another_tasks_does(
    bursting: LogFile,
) -> None:
    """It may be the one that ends the process."""
    bursting.before_run_of("nightly")
    assert written(bursting) == ["0"]
    bursting.before_run_of("poison")
    assert written(bursting) == ["0", "1", "2"]


def test_a_line_that_stands_for_a_record_takes_the_waiting_ones_along(bursting: LogFile) -> None:
    """In their order."""
    note(bursting, "3")
    assert written(bursting) == ["0", "1", "2", "3"]


def test_whoever_asks_for_the_newest_lines_has_those_that_wait(bursting: LogFile) -> None:
    """In this process."""
    assert [line.split()[-1] for line in bursting.tail(2)] == ["2", "1"]


def test_after_a_twentieth_of_a_second_the_next_line_ends_the_burst(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this process's monotonic clock."""
    clock = ManualClock(NOW)
    monkeypatch.setattr(logfile, "time", clock)
    for number, seconds in enumerate((0, 0.04, 0.02, 0.04)):
        clock.tick(seconds)
        burst(log, number)
    assert written(log) == ["0", "1", "2"]


def test_threads_lose_and_double_no_line(log: LogFile) -> None:
    """Each appends in bursts of its own and flushes now and then."""

    def run(who: int) -> None:
        for number in range(300):
            burst(log, who * 1000 + number)
            if number % 7 == 0:
                log.flush()

    threads = [threading.Thread(target=run, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    expected = [who * 1000 + number for who in range(4) for number in range(300)]
    assert sorted(map(int, written(log))) == expected


def test_several_processes_append_and_shorten_and_no_line_is_lost_or_mixed(log: LogFile) -> None:
    """What is left of each process is a run of lines without gaps, and all lines are whole."""
    program = """
        import sys
        from pathlib import Path
        from lazycron import locks, logfile
        from tests.test_logfile import note

        logfile.LARGEST, logfile.KEPT_LINES = 10_000, 50
        locks.LOCK_PATIENCE = 30.0
        log = logfile.LogFile(Path(sys.argv[1]))
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(400):
            note(log, f"by {sys.argv[2]} number {number} end")
        """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(log.path), str(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for name in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    kept: dict[str, list[int]] = {}
    for line in reversed(log.tail(10_000)):
        found = re.fullmatch(
            r"\[2026-11-30 03:00:07\] nightly  ok  412 ms  by (\d) number (\d+) end", line
        )
        assert found, line
        kept.setdefault(found[1], []).append(int(found[2]))
    assert sum(map(len, kept.values())) >= 50
    for numbers in kept.values():
        assert numbers == list(range(numbers[0], 400))


def test_a_line_that_is_written_while_another_thread_shortens_is_not_lost(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the shortener has read and before it has written."""
    monkeypatch.setattr(locks, "LOCK_PATIENCE", 30.0)
    monkeypatch.setattr(logfile, "LARGEST", 1000)
    has_read, comes = threading.Event(), threading.Event()

    read_end = logfile._read_end

    def slowly(descriptor: int) -> bytes:
        found = read_end(descriptor)
        has_read.set()
        assert comes.wait(5)
        return found

    monkeypatch.setattr(logfile, "_read_end", slowly)

    real = locks._lock_within

    def noted(descriptor: int, seconds: float, *, shared: bool) -> bool:
        if has_read.is_set():
            comes.set()
        return real(descriptor, seconds, shared=shared)

    monkeypatch.setattr(locks, "_lock_within", noted)

    def append() -> None:
        assert has_read.wait(5)
        note(log, "late")
        comes.set()  # where nothing kept it from being written

    other = threading.Thread(target=append)
    other.start()
    slow = LogFile(log.path)
    while not has_read.is_set():
        note(slow, "early")
    other.join()
    assert log.tail(1)[0].endswith("  late")


def test_the_moment_is_written_as_it_is_given(log: LogFile) -> None:
    """Runs are stamped in UTC."""
    log.note(NOW + timedelta(hours=21), "nightly", "ok", 0, "url  Done.")
    assert log.tail(1) == ["[2026-12-01 00:00:07] nightly  ok  0 ms  url  Done."]
