"""Statements compiled once for each dialect."""

from sqlalchemy import Engine, bindparam, select

from lazycron.schema import lazycron_setting
from lazycron.store.driver.prepared import Prepared
from lazycron.store.driver.transaction import Transactions
from tests.conftest import START


def test_a_statement_is_compiled_once_at_its_first_use(engine: Engine) -> None:
    """However often it is sent; what an app registers and never uses costs nothing."""
    name = lazycron_setting.c.name
    query = select(lazycron_setting.c.value).where(name == bindparam("p_name"), name != "other")
    prepared = Prepared(query, engine.dialect)
    assert "_compiled" not in vars(prepared)
    first = prepared.bind({"p_name": "a"})
    compiled = vars(prepared)["_compiled"]
    second = prepared.bind({"p_name": "b"})
    assert vars(prepared)["_compiled"] is compiled
    # The statement's own value stands beside the one that varies.
    by_name = {"p_name": "b", "name_1": "other"}
    assert (len(first), second) == (2, by_name if isinstance(second, dict) else ("b", "other"))


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
        rows = begun.all(begin.prepare(query), {"p_name": "a", "p_other": "b"})
    begin.close()
    assert [(row.first, row[1]) for row in rows] == [("a", "a")]
