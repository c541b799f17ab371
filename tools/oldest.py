"""Print the oldest versions of what lazycron needs at run time, as pyproject.toml admits them."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(
    (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def oldest() -> list[str]:
    """Return `name==version` for each lower bound, and the bare name where there is none."""
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["postgresql"], *extras["mariadb"]]
    return [re.sub(r">=([0-9.]+).*", r"==\1", one) for one in needed]


if __name__ == "__main__":
    print(*oldest())
