"""What the tables promise, on every database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, Engine, delete, insert, select, text
from sqlalchemy.exc import IntegrityError, StatementError

from lazycron.model.values import write_value
from lazycron.schedules.shaped import Crontab
from lazycron.schema import lazycron_setting, scheduled_task, task_run
from lazycron.texts import shorten
from tests.conftest import START


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection whose changes are rolled back."""
    with engine.connect() as made:
        yield made
        made.rollback()


def keep(connection: Connection, moment: datetime) -> datetime:
    """Store a moment and read it back."""
    connection.execute(delete(lazycron_setting))
    connection.execute(insert(lazycron_setting).values(name="at", value="", changed_at=moment))
    found = connection.execute(select(lazycron_setting.c.changed_at)).scalar_one()
    assert isinstance(found, datetime)
    return found


def make_row(connection: Connection, name: str, key: str | None, **values: object) -> int:
    """Make a row; return its id."""
    plain = {"next_run_at": START, "scheduled_for": START, "created_at": START}
    made = connection.execute(
        insert(scheduled_task).values(name=name, key=key, **(plain | values))
    ).inserted_primary_key
    assert made is not None
    return int(made[0])


# moments


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2036, 1, 1, tzinfo=UTC),
        datetime(2126, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_a_moment_comes_back_to_the_microsecond_aware_and_in_utc(
    connection: Connection, moment: datetime
) -> None:
    """From any year."""
    found = keep(connection, moment)
    assert found == moment
    assert found.tzinfo is UTC


def test_a_moment_of_another_zone_is_stored_in_utc(connection: Connection) -> None:
    """Also the second pass of an hour that comes twice."""
    local = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert keep(connection, local) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_a_naive_moment_is_refused(connection: Connection) -> None:
    """Nobody knows which it was."""
    with pytest.raises(StatementError, match="has no time zone; lazycron stores aware moments"):
        keep(connection, datetime(2026, 1, 1))  # noqa: DTZ001


def test_no_moment_is_no_moment(connection: Connection) -> None:
    """An empty column."""
    make_row(connection, "a", "")
    assert connection.execute(select(scheduled_task.c.last_run_at)).scalar_one() is None


def test_moments_are_compared_and_sorted_as_time_goes(connection: Connection) -> None:
    """A microsecond apart, across a second, a day, a year."""
    moments = [
        START - timedelta(microseconds=1),
        START,
        START + timedelta(microseconds=1),
        START + timedelta(seconds=1),
        START + timedelta(seconds=10),
        START + timedelta(days=10),
        START + timedelta(days=365),
    ]
    for number, moment in enumerate(reversed(moments)):
        make_row(connection, f"row {number}", "", next_run_at=moment)
    column = scheduled_task.c.next_run_at
    assert connection.execute(select(column).order_by(column)).scalars().all() == moments
    due = select(column).where(column <= START).order_by(column)
    assert connection.execute(due).scalars().all() == moments[:2]


def test_a_person_can_read_the_moments(connection: Connection) -> None:
    """Date and time of day stand in the table as they are."""
    keep(connection, datetime(2026, 1, 1, 12, 34, 56, 789000, tzinfo=UTC))
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL TIME ZONE 'UTC'"))
    shown = connection.execute(
        text("SELECT CAST(changed_at AS CHAR(23)) FROM lazycron_setting")
    ).scalar_one()
    assert shown.startswith("2026-01-01 12:34:56.789")


# names, keys and ids


def test_names_are_compared_byte_by_byte(connection: Connection) -> None:
    """Capitals, accents, composed and not: four rows."""
    for name in ("straße", "Straße", "strasse", "stra\u00dfe\u0301"):
        make_row(connection, name, "")
    found = select(scheduled_task.c.name).where(scheduled_task.c.name == "strasse")
    assert connection.execute(found).scalars().all() == ["strasse"]


def test_names_and_keys_hold_191_characters_of_any_kind(connection: Connection) -> None:
    """Astral ones, four bytes each."""
    make_row(connection, "😀" * 191, "🂡" * 191)
    row = connection.execute(select(scheduled_task.c.name, scheduled_task.c.key)).one()
    assert tuple(row) == ("😀" * 191, "🂡" * 191)


@pytest.mark.parametrize("key", ["", "k"])
def test_a_key_is_there_once_within_its_name(connection: Connection, key: str) -> None:
    """The recurring row's too, which is the empty one."""
    make_row(connection, "a", key)
    make_row(connection, "b", key)
    with pytest.raises(IntegrityError):
        make_row(connection, "a", key)


def test_jobs_without_a_key_are_as_many_as_are_made(connection: Connection) -> None:
    """NULL repeats."""
    assert len({make_row(connection, "a", None) for _ in range(3)}) == 3


def test_the_id_of_a_row_that_is_gone_is_never_given_again(connection: Connection) -> None:
    """Not even the last one's: a stranger's result, a repeated payment key."""
    first = make_row(connection, "a", None)
    last = make_row(connection, "a", None)
    connection.execute(delete(scheduled_task))
    assert make_row(connection, "a", None) > last > first


def test_a_new_row_is_enabled_active_unclaimed_and_has_never_failed(
    connection: Connection,
) -> None:
    """The database's own defaults."""
    make_row(connection, "a", "")
    row = connection.execute(select(scheduled_task)).one()
    assert (row.enabled, row.state, row.lock_token) == (True, "active", None)
    assert (row.failures, row.losses, row.attempts) == (0, 0, 0)


# texts


def test_the_longest_texts_fit(connection: Connection) -> None:
    """A schedule of 400 characters, a message of 480, an error of 16,000 and a result of 64 KiB."""
    crontab = Crontab(",".join(["10"] * 126) + " * * * *")
    assert len(crontab.text) == 400
    make_row(connection, "a", "", schedule=crontab.text, last_message=shorten("😀" * 999, 480))
    result = write_value("x" * 65_534, "result")
    connection.execute(
        insert(task_run).values(
            name="a",
            scheduled_for=START,
            started_at=START,
            status="ok",
            trigger="manual",
            attempt=1,
            error=shorten("😀" * 99_999, 16_000),
            result=result,
        )
    )
    row = connection.execute(select(task_run.c.error, task_run.c.result)).one()
    assert (len(row.error), row.result) == (16_000, result)
    assert connection.execute(select(scheduled_task.c.schedule)).scalar_one() == crontab.text
