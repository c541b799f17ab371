"""Whether SQLite's file is still the one that was opened, or was replaced or deleted since."""

from pathlib import Path

from sqlalchemy import Engine, event

from lazycron.store.driver.sqlite_path import file_of, is_in_memory


class OpenedFile:
    """Remembers which file an engine's first connection has opened.

    A connection keeps using a file that was deleted or replaced, while all others see the new one.
    Copies of the engine's pool that are made from now on count as well.
    """

    def __init__(self, engine: Engine) -> None:
        self._path = _path_of(engine)
        self._opened: tuple[int, int] | None = None
        if self._path is not None:
            # The first of all listeners, so that the file can hardly change in between.
            event.listen(engine, "connect", self._note, insert=True)

    def _note(self, *_: object) -> None:
        # Only the first counts: older connections of the pool may still have its file.
        if self._opened is None and self._path is not None:
            try:
                self._opened = _identity(self._path)
            except OSError:
                # The app's way to connect does not follow its URL, or cannot be known.
                self._path = None

    @property
    def number(self) -> int | None:
        """The file's number on its disk: a copy has another one, a container sees the same one."""
        return None if self._opened is None else self._opened[1]

    def is_another(self) -> bool:
        """Tell, once, whether the path now leads to another file or to none."""
        opened, path = self._opened, self._path
        if opened is None or path is None:
            return False
        try:
            if _identity(path) == opened:
                return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return False  # this says nothing about the file
        self._opened = None
        return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _path_of(engine: Engine) -> Path | None:
    """Return the file an engine on SQLite opens; None where it opens none."""
    if engine.dialect.name != "sqlite" or is_in_memory(engine.url):
        return None
    return file_of(engine.url).absolute()
