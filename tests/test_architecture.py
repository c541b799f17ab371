"""What docs/architecture.md says about the modules is what import-linter holds."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_shows_the_layers_of_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [one for one in contracts if one["id"] == "layers"]
    held = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    [picture] = re.findall(r"```text\nedges(.*?)```", page, re.DOTALL)
    shown = [set(re.findall(r"\w+", line[9:])) for line in f"edges{picture}".splitlines()]
    assert shown == held


def test_every_module_is_in_the_picture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "lazycron"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    missing = {name for name in modules - {"__init__"} if not re.search(rf"\b{name}\b", page)}
    assert not missing
