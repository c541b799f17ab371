"""The command `lazycron` of the pages' terminals: a fork of a process that has imported it once.

`python docs_command.py serve SOCKET` waits for commands; `python docs_command.py SOCKET WORD...`
sends one, with its folder, its environment and its three files, and ends as the command ends.
"""

import json
import os
import signal
import socket
import sys

MOST_BYTES = 1_000_000


def ask(address: str, words: list[str]) -> int:
    """Have a command run; return its exit status."""
    folder = os.getcwd()  # noqa: PTH109 - pathlib would take half of the time
    request = json.dumps({"words": words, "folder": folder, "environment": dict(os.environ)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as wire:
        wire.connect(address)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        socket.send_fds(wire, [request.encode()], [0, 1, 2])
        status = wire.recv(1)
    return status[0] if status else 1


def serve(address: str) -> None:
    """Fork for each command, until killed."""
    import alembic.command  # noqa: F401 - what the command imports is imported here, once

    import lazycron.cli.command  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            wire, _ = door.accept()
            with wire:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    run(wire)


def run(wire: socket.socket) -> None:
    """Be the command, and say how it ended."""
    content, files, _, _ = socket.recv_fds(wire, MOST_BYTES, 3)
    request = json.loads(content)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # What the streams know of the files that they were opened on holds no longer.
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace")
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 1
    try:
        status = status_of(request["words"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        wire.send(bytes([status]))
        os._exit(status)


def status_of(words: list[str]) -> int:
    """Call what the installed command calls."""
    from lazycron.cli import main

    sys.argv = ["lazycron", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
