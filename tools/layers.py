"""Draw the rooms of lazycron from its imports, and hold the limits of the house.

The list of layers stands in pyproject.toml and nowhere else; this reads it, and measures what the
imports really are. It ends with an error where a limit is passed. `make layers` runs it.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "lazycron"
MOST_FLOORS = 14
MOST_FILES = 20
MOST_LINES = 450

Arrows = dict[str, set[str]]


@dataclass(frozen=True, slots=True)
class House:
    """What was measured: rooms by name, with what each imports, and every file with its lines."""

    arrows: Arrows
    lines: dict[Path, int]

    @property
    def floors(self) -> list[list[str]]:
        """Rooms from the ground up: a room stands one floor above the highest that it imports."""
        heights: dict[str, int] = {}

        def height(room: str, above: tuple[str, ...] = ()) -> int:
            if room in above:
                message = f"a circle of rooms: {' > '.join((*above, room))}"
                raise SystemExit(message)
            if room not in heights:
                below = (height(one, (*above, room)) for one in self.arrows[room])
                heights[room] = 1 + max(below, default=0)
            return heights[room]

        found = defaultdict(list)
        for room in sorted(self.arrows):
            found[height(room)].append(room)
        return [found[number] for number in sorted(found)]

    def problems(self) -> list[str]:
        """Name every limit that is passed."""
        found = []
        if len(self.floors) > MOST_FLOORS:
            found.append(f"{len(self.floors)} floors; at most {MOST_FLOORS}")
        folders: dict[Path, int] = defaultdict(int)
        for path in self.lines:
            folders[path.parent] += 1
        found += [
            f"{folder}: {count} files; at most {MOST_FILES}"
            for folder, count in folders.items()
            if count > MOST_FILES
        ]
        found += [
            f"{path}: {count} lines; at most {MOST_LINES}"
            for path, count in self.lines.items()
            if count > MOST_LINES
        ]
        return found


def layers() -> list[str]:
    """Return the layers that import-linter holds, from the top down, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [one for one in contracts if one["id"] == "layers"]
    return list(contract["layers"])


def measure() -> House:
    """Read the imports and count the lines."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    arrows: Arrows = {}
    for module in graph.modules:
        room = room_of(module)
        if room is None:
            continue
        imported = {room_of(one) for one in graph.find_modules_directly_imported_by(module)}
        arrows.setdefault(room, set()).update(one for one in imported - {room} if one)
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    lines = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in files
    }
    return House(arrows, lines)


def room_of(module: str) -> str | None:
    """Return the room a module lies in: its folder, or itself; None for the front door."""
    _, _, rest = module.partition(".")
    return rest.split(".")[0] or None


def about(room: str) -> str:
    """Return the first line of what a room says of itself."""
    folder = ROOT / PACKAGE / room / "__init__.py"
    path = folder if folder.exists() else ROOT / PACKAGE / f"{room}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def main() -> int:
    """Print the layers, the rooms and the figures; return 1 where a limit is passed."""
    house = measure()
    for layer in layers():
        rooms = [room for room in layer.replace("|", " ").replace(":", " ").split() if room]
        for room in rooms:
            print(f"{room:<12}{about(room)}")
        print("  ──")
    arrows = sum(len(below) for below in house.arrows.values())
    counts = list(house.lines.values())
    print(
        f"{len(house.arrows)} rooms on {len(house.floors)} floors, {arrows} arrows; {len(counts)} "
        f"files, {sum(counts)} lines, median {median(counts):.0f}, longest {max(counts)}"
    )
    problems = house.problems()
    for problem in problems:
        print(f"too much: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
