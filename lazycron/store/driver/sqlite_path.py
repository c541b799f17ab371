"""Which file an SQLite URL names, be it a path or a `file:` URI."""

from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy import URL

URI = "file:"
YES = ("true", "yes", "on", "y", "t", "1")


def is_uri(url: URL) -> bool:
    """Tell whether SQLite reads the URL's path as a URI."""
    wanted = str(url.query.get("uri", "")).strip().lower() in YES
    return wanted and (url.database or "").startswith(URI)


def file_of(url: URL) -> Path:
    """Return the path of the file that an SQLite URL names."""
    name = url.database or ""
    if not is_uri(url):
        return Path(name)
    name = name.removeprefix(URI).partition("#")[0]
    if name.startswith("//"):  # then comes a host, which is empty or this one
        name = "/" + name[2:].partition("/")[2]
    return Path(unquote(name))


def absolute(url: URL, folder: Path) -> URL:
    """Return the URL with a relative path of SQLite's counted from this folder."""
    name = url.database or ""
    in_memory = name.removeprefix(URI).startswith(":memory:") or url.query.get("mode") == "memory"
    if url.get_backend_name() != "sqlite" or not name or in_memory:
        return url
    path = file_of(url)
    if path.is_absolute():
        return url
    whole = str(folder / path)
    return url.set(database=URI + quote(whole) if is_uri(url) else whole)
