"""The rooms are what docs/architecture.md says, and the house keeps its limits."""

import re
from pathlib import Path

from lazycron.store.driver.private import NEEDED
from tools.layers import PACKAGE, ROOT, about, layers, measure

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_house_keeps_its_limits() -> None:
    """Floors, files in a folder, lines of a file; and no circle."""
    assert measure().problems() == []


def test_every_room_says_what_may_live_there() -> None:
    """In one line, of its folder or its file."""
    rooms = measure().arrows
    assert {room for room in rooms if not about(room)} == set()
    assert {room for layer in layers() for room in re.findall(r"\w+", layer)} == set(rooms)


def test_the_page_has_a_place_for_every_room() -> None:
    """Who reads only the page has heard of each."""
    assert {room for room in measure().arrows if not re.search(rf"\b{room}\b", PAGE)} == set()


def test_what_the_page_names_is_there() -> None:
    """A module written as `folder/module` is one."""
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+)`", PAGE))
    package = ROOT / PACKAGE

    def is_there(name: str) -> bool:
        places = (package / name, package / f"{name}.py", ROOT / name, ROOT / f"{name}.py")
        return any(Path(place).exists() for place in places)

    assert {name for name in named if not is_there(name)} == set()


def test_sqlalchemys_private_names_stand_in_one_file() -> None:
    """Which sends statements the public way where one of them is missing."""
    names = {name for _, name in NEEDED}
    found = {
        str(path.relative_to(ROOT / PACKAGE))
        for path in (ROOT / PACKAGE).rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in names)
    }
    assert found == {"store/driver/private.py"}
