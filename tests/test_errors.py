"""Errors: named kinds, readable texts, and no secret in any of them."""

import pickle

import pytest

from lazycron import errors
from lazycron.errors import (
    ArgumentsError,
    BusyError,
    ConfigurationError,
    DuplicateTaskError,
    KeyTakenError,
    LazyCronError,
    LeaseLostError,
    NotInstalledError,
    ScheduleError,
    UnknownTaskError,
)

ALL = [
    ArgumentsError,
    BusyError,
    ConfigurationError,
    DuplicateTaskError,
    KeyTakenError,
    LeaseLostError,
    NotInstalledError,
    ScheduleError,
    UnknownTaskError,
]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_a_lazycron_error(kind: type[LazyCronError]) -> None:
    """One except clause catches all of them."""
    assert issubclass(kind, LazyCronError)


def test_errors_that_python_has_a_word_for_are_also_of_that_kind() -> None:
    """A caller who knows nothing of lazycron catches them by Python's names."""
    assert issubclass(ScheduleError, ValueError)
    assert issubclass(UnknownTaskError, KeyError)
    assert issubclass(ArgumentsError, TypeError)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_without_a_text_says_its_docstring(kind: type[LazyCronError]) -> None:
    """The error's docstring is its message."""
    assert str(kind()) == kind.__doc__


def test_an_error_with_a_text_says_it_plainly() -> None:
    """Also the one that is a KeyError, which would show the text's repr."""
    assert str(UnknownTaskError("no task is named 'x'")) == "no task is named 'x'"


def test_not_installed_says_what_to_do() -> None:
    """The text names the command."""
    assert "lazycron migrate" in str(NotInstalledError())


@pytest.mark.parametrize("kind", ALL)
def test_errors_travel_between_processes(kind: type[LazyCronError]) -> None:
    """A pickled error comes back with kind and text."""
    back = pickle.loads(pickle.dumps(kind("what went wrong")))
    assert (type(back), str(back)) == (kind, "what went wrong")


def test_the_module_has_no_error_that_the_list_above_does_not_know() -> None:
    """A new error is added to these tests too."""
    found = {
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, LazyCronError)
    }
    assert found == {LazyCronError, *ALL}
