"""Statements compiled once for each dialect."""

from sqlalchemy import Engine, bindparam, select

from lazycron.schema import lazycron_setting
from lazycron.store.driver.prepared import MOST_KEPT, Prepare
from lazycron.store.driver.transaction import Transactions
from tests.conftest import START


def test_a_statement_is_prepared_once(engine: Engine) -> None:
    """However often it is sent."""
    query = select(lazycron_setting.c.value).where(lazycron_setting.c.name == bindparam("p_name"))
    prepare = Prepare(engine.dialect)
    assert prepare(query, {"p_name": "a"}) is prepare(query, {"p_name": "b"})


def test_statements_that_come_and_go_are_not_kept_for_ever(engine: Engine) -> None:
    """Tasks may be registered all the time; each set of names has statements of its own."""
    prepare = Prepare(engine.dialect)
    for number in range(MOST_KEPT + 10):
        query = select(lazycron_setting.c.value).where(lazycron_setting.c.name == str(number))
        prepare(query, {})
    assert len(prepare._known) == 10


def test_columns_are_read_by_their_labels_and_in_order(engine: Engine) -> None:
    """Whatever SQLAlchemy would call them."""
    name = lazycron_setting.c.name
    query = select(name.label("first"), name.label("second")).where(
        name == bindparam("p_name"), name != bindparam("p_other")
    )
    with engine.begin() as connection:
        connection.execute(lazycron_setting.delete())
        connection.execute(lazycron_setting.insert().values(name="a", value="", changed_at=START))
    begin = Transactions(engine)
    with begin() as begun:
        rows = begun.all(query, {"p_name": "a", "p_other": "b"})
    begin.close()
    assert [(row.first, row[1]) for row in rows] == [("a", "a")]
