"""Runs the Python blocks of one page, one after the other, in one namespace.

Started by test_docs.py in the page's folder. Reads requests as lines of JSON from standard input
and answers each with a line: the traceback as text, or null.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType


def main() -> None:
    # What blocks print or ask must not get between the answers.
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    sys.path.insert(0, str(Path.cwd()))
    page = sys.modules["__main__"] = ModuleType("__main__")
    for line in requests:
        print(json.dumps(failure_of(json.loads(line), page)), file=answers)


def failure_of(request: dict[str, str], page: ModuleType) -> str | None:
    try:
        if "file" in request:
            import_file(Path(request["file"]), request["source"])
        else:
            exec(compile(request["source"], request["name"], "exec"), vars(page))
    except BaseException:  # noqa: BLE001 a block that exits has failed, too
        return traceback.format_exc()
    return None


def import_file(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    parts = path.with_suffix("").parts
    if not all(part.isidentifier() for part in parts):  # gunicorn.conf.py
        runpy.run_path(str(path))
        return
    name = ".".join(parts)
    sys.modules.pop(name, None)  # a page may write a file anew
    importlib.invalidate_caches()
    importlib.import_module(name)


if __name__ == "__main__":
    main()
