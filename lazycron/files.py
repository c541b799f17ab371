"""lazycron's own files: their names, their folder, and opening them without touching others'."""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

STATE_SUFFIX = ".lazycron.json"
LOG_SUFFIX = ".lazycron.log"
LOCK_SUFFIX = ".lazycron.lock"
UNLOOKED_SUFFIX = ".lazycron.unlooked"
PRIVATE = "lazycron-"
# 0 where the system has none; there a check before the opening must do.
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# Opening a FIFO in a file's place would block until another process opens it, too.
NONBLOCK = getattr(os, "O_NONBLOCK", 0)


def log_of(state: Path) -> Path:
    """Return the log file's path of a state file: `shop.lazycron.json`, `shop.lazycron.log`."""
    return state.with_name(state.name.removesuffix(STATE_SUFFIX) + LOG_SUFFIX)


def lock_of(state: Path) -> Path:
    """Return the lock file's path of a state file."""
    return state.with_name(state.name.removesuffix(STATE_SUFFIX) + LOCK_SUFFIX)


def unlooked_of(state: Path) -> Path:
    """Return where the mark of a state file lies that a process ended before its look."""
    return state.with_name(state.name.removesuffix(STATE_SUFFIX) + UNLOOKED_SUFFIX)


def is_log_or_lock(path: Path) -> bool:
    """Tell whether a path has the name of a log or lock file, on any file system."""
    return path.name.casefold().endswith((LOG_SUFFIX, LOCK_SUFFIX))


def open_own(path: Path, flags: int) -> int:
    """Open a plain file, with mode 0600 where it is made.

    Raises OSError for a link, a second name of another file, and anything but a plain file: what
    others have put there is neither read nor written.
    """
    folder = path.parent
    if _is_private(folder):
        _check_private(folder)
    if not NOFOLLOW and path.is_symlink():
        raise _followed_nowhere(path)
    try:
        descriptor = os.open(path, flags | NOFOLLOW | NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _followed_nowhere(path) from None
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    what = "it is not a plain file"
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
        what = "the file has a second name (a hard link)"
    raise OSError(errno.EINVAL, what, str(path))


def open_or_make(path: Path, flags: int) -> int:
    """Do what `open_own` does, and make the file and its folder where they are missing."""
    try:
        return open_own(path, flags | os.O_CREAT)
    except FileNotFoundError:
        make_folder(path.parent)
        return open_own(path, flags | os.O_CREAT)


def make_folder(folder: Path) -> None:
    """Make a folder where it is missing; lazycron's own in the temp folder is its user's alone."""
    if not _is_private(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check_private(folder)


def private_folder() -> Path:
    """Return this user's own folder in the temp folder, which may not exist yet."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        return Path(tempfile.gettempdir()) / f"{PRIVATE}{user}"
    except OSError:  # no folder of this system can be written
        return Path(f"{PRIVATE}{user}")


def _is_private(folder: Path) -> bool:
    return folder.name.startswith(PRIVATE) and folder == private_folder()


def _check_private(folder: Path) -> None:
    """Raise PermissionError where others have made the folder, or can write or read in it.

    In a temp folder any user may make it first, and its content would be believed.
    """
    found = folder.lstat()
    if not hasattr(os, "getuid"):
        return
    mine = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
    if not mine or stat.S_IMODE(found.st_mode) & 0o077:
        message = (
            f"the folder {folder} is not this user's alone, so it is not used: remove it, or pass "
            "state_file="
        )
        raise PermissionError(errno.EACCES, message, str(folder))


def _followed_nowhere(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a link, and lazycron follows none", str(path))
