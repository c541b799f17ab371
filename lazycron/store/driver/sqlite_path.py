"""Which file an SQLite URL names, by a path or by a `file:` URI."""

import os
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy import URL

URI = "file:"
IN_MEMORY = ":memory:"
YES = ("true", "yes", "on", "y", "t", "1")


def is_uri(url: URL) -> bool:
    """Tell whether SQLite reads the URL's path as a URI."""
    wanted = any(one.strip().lower() in YES for one in _options(url, "uri"))
    return wanted and (url.database or "").startswith(URI)


def is_in_memory(url: URL) -> bool:
    """Tell whether an SQLite URL names no file, but a database that one connection sees."""
    name = name_of(url).removeprefix(URI)
    modes, systems = _options(url, "mode"), _options(url, "vfs")
    return not name or name.startswith(IN_MEMORY) or "memory" in modes or "memdb" in systems


def host_of(url: URL) -> str:
    """Return the host that a `file:` URI names; SQLite accepts only none and `localhost`."""
    name = (url.database or "").removeprefix(URI)
    return name[2:].partition("/")[0] if is_uri(url) and name.startswith("//") else ""


def name_of(url: URL) -> str:
    """Return the file's name as it stands on the disk, relative or not."""
    name = url.database or ""
    if not is_uri(url):
        return name
    name = name.removeprefix(URI).partition("#")[0]
    if name.startswith("//"):
        name = "/" + name[2:].partition("/")[2]
    return unquote(name)


def file_of(url: URL) -> Path:
    """Return the path of the file that an SQLite URL names."""
    return Path(name_of(url))


def absolute(url: URL, folder: Path | None) -> URL:
    """Return the URL with a relative SQLite path made absolute from a folder.

    None is a folder that was deleted: then a relative path raises FileNotFoundError.
    """
    if url.get_backend_name() != "sqlite" or is_in_memory(url):
        return url
    path = file_of(url)
    # As SQLAlchemy does it: `..` is removed from the text, even after a link.
    whole = os.path.abspath(path if folder is None else folder / path)  # noqa: PTH100 - no link followed
    if whole == str(path):
        return url
    return url.set(database=URI + quote(whole) if is_uri(url) else whole)


def _options(url: URL, name: str) -> tuple[str, ...]:
    """Return an option of the query, which may be there more than once."""
    found = url.query.get(name, ())
    return (found,) if isinstance(found, str) else tuple(found)
