"""Every code block of README.md and docs/ does what it says: it is run, in the order of its page.

A page has a fresh folder, one Python namespace and one terminal. The command `lazycron` is a fork
of a process that has imported it already: to start an interpreter for each takes most of the time.

- python: executed. One that begins with "# file: name.py" is written to that file and imported.
- console: its lines that begin with "$ " are run by bash, which ends at the first that fails. What
  one block exports, and where it changes to, holds for the next one, as in a terminal.
- toml, json: parsed.
- NOT_RUN: not run. Any other language is an error, so that a block escapes only on purpose.

A block after "<!-- docs: skip because ... -->" is skipped for that reason.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
SECONDS = 60

NOT_RUN = {
    "diff": "half of it is gone",
    "html": "shown by the example app",
    "ini": "another program's settings",
    "mermaid": "a picture",
    "nginx": "another program's settings",
    "sql": "run by the store's own tests",
    "text": "output, or a figure",
    "yaml": "another program's settings",
}
NOT_RUN_COMMANDS = {
    "git": "the repo is here already, and a test fetches nothing",
    "pip": "lazycron is installed already, and a test installs nothing",
}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its first line of code
    language: str
    source: str
    comment: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def skipped(self) -> str | None:
        match = re.fullmatch(r"<!-- docs: skip because (\S.*?) -->", self.comment, re.DOTALL)
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    """The blocks that can be run or parsed, or have no business in a page."""
    return [block for block in all_blocks_of(page) if block.language not in NOT_RUN]


def all_blocks_of(page: Path) -> Iterator[Block]:
    comment = ""
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            assert token.map
            language = token.info.split()[0] if token.info.strip() else ""
            line = token.map[0] + (2 if token.type == "fence" else 1)
            yield Block(page, line, language, token.content, comment)
        comment = token.content.strip() if token.type == "html_block" else ""


class Page:
    """The folder, the namespace and the terminal of one page, and how each block went."""

    def __init__(self, folder: Path, commands: Path | None = None) -> None:
        self.folder = folder
        self.went: dict[Block, Exception | None] = {}
        self.terminal = folder.with_name(f"{folder.name}.terminal")
        self.terminal.touch()
        mine = ("LAZYCRON_", "MAKE", "MFLAGS", "PYTEST_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        programs = [str(commands or ""), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = kept | {
            "PATH": os.pathsep.join(filter(None, programs)),
            "PYTHONPATH": str(ROOT),  # the code beside this test, whatever else is installed
            "PYTHONDONTWRITEBYTECODE": "1",  # a file may be written twice in a second
            "PYTHONWARNINGS": "error",
        }
        self.python: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self.python is None:
            return
        with self.python:
            try:
                self.python.communicate(timeout=SECONDS)
            finally:
                kill(self.python)
        assert self.python.returncode == 0, f"the interpreter in {self.folder} did not end well"

    def interpreter(self) -> subprocess.Popen[str]:
        """The page's interpreter, started by its first Python block."""
        if self.python is None:
            self.python = start(self.folder, self.environment, "docs_interpreter.py")
        return self.python

    def run_up_to(self, block: Block) -> None:
        """Run what the page has up to this block and has not run yet; say how this one went."""
        for each in blocks_of(block.page):
            if each not in self.went and each.skipped is None:
                self.went[each] = self.failure_of(each)
            if each == block:
                break
        failure = self.went[block]
        if failure is not None:
            raise failure

    def failure_of(self, block: Block) -> Exception | None:
        try:
            self.run(block)
        except Exception as error:  # noqa: BLE001 kept for the block's own test
            return error
        return None

    def run(self, block: Block) -> None:
        known = not block.comment.startswith("<!-- docs:")
        assert known, f"write <!-- docs: skip because ... -->, not {block.comment}"
        match block.language:
            case "python":
                self.run_python(block)
            case "console":
                self.run_console(block)
            case "toml":
                tomllib.loads(block.source)
            case "json":
                json.loads(block.source)
            case language:
                message = f"{language or 'no language'}: neither run nor in NOT_RUN"
                raise AssertionError(message)

    def run_python(self, block: Block) -> None:
        request = {"source": block.source}
        if match := re.match(r"# file: (\S+\.py)\n", block.source):
            request["file"] = match[1]
        else:
            # Line numbers in tracebacks are those of the page.
            request["source"] = "\n" * (block.line - 1) + block.source
            request["name"] = str(block.page)
        python = self.interpreter()
        assert python.stdin
        assert python.stdout
        python.stdin.write(json.dumps(request) + "\n")
        python.stdin.flush()
        if not select.select([python.stdout], [], [], SECONDS)[0]:
            kill(python)
            message = f"still running after {SECONDS} s"
            raise AssertionError(message)
        answer = python.stdout.readline()
        failure = json.loads(answer) if answer else "the interpreter has ended"
        if failure is not None:
            raise AssertionError(failure)

    def run_console(self, block: Block) -> None:
        commands = list(commands_of(block))
        assert commands, "a console block has lines that begin with '$ '"
        runnable = [
            made_in_root(command) if command.startswith("make ") else command
            for command in commands
            if command.split()[0] not in NOT_RUN_COMMANDS
        ]
        script = "\n".join(
            [
                f"source {self.terminal}",
                "set -eo pipefail",
                *runnable,
                "set +eo pipefail",
                f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} > {self.terminal}",
            ]
        )
        with subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as bash:
            try:
                output, _ = bash.communicate(timeout=SECONDS)
            finally:
                kill(bash)  # and what it left in the background
        if bash.returncode:
            commands_and_output = "\n".join([*commands, output])
            message = f"exit status {bash.returncode} of:\n{commands_and_output}"
            raise AssertionError(message)


def commands_of(block: Block) -> Iterator[str]:
    lines = iter(block.source.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines).removeprefix("> ")
            yield command


def made_in_root(command: str) -> str:
    """Only ask make whether it knows the target: `make test` from within it would never end."""
    return command.replace("make ", f"make --dry-run --directory {ROOT} ", 1) + " > /dev/null"


def start(
    folder: Path, environment: dict[str, str], program: str, *words: str
) -> subprocess.Popen[str]:
    """Start a Python program of the tests' that is talked to by lines."""
    return subprocess.Popen(
        [sys.executable, "-P", Path(__file__).with_name(program), *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the command `lazycron`, which starts no interpreter that imports anything."""
    folder = tmp_path_factory.mktemp("bin")
    program, address = Path(__file__).with_name("docs_command.py"), str(folder / "socket")
    command = folder / "lazycron"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {program} {address} "$@"\n')
    command.chmod(0o755)
    with start(folder, Page(folder).environment, program.name, "serve", address) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == "ready\n"
            yield folder
        finally:
            kill(server)


@pytest.fixture(scope="module")
def page_of(
    tmp_path_factory: pytest.TempPathFactory, commands: Path
) -> Iterator[Callable[[Path], Page]]:
    with ExitStack() as stack:

        @cache
        def opened(path: Path) -> Page:
            page = Page(tmp_path_factory.mktemp(path.stem), commands)
            stack.callback(page.close)
            return page

        yield opened


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block(block: Block, page_of: Callable[[Path], Page]) -> None:
    if block.skipped:
        pytest.skip(block.skipped)
    page_of(block.page).run_up_to(block)


GOOD = """
```python
answer = 41
```
<!-- docs: skip because it would spoil the answer -->
```python
answer = 0
```
- In a list:

  ```python
  # file: shop/tasks.py
  answer = 1
  ```

```python
from shop import tasks
assert answer + tasks.answer == 42
```
```console
$ export ANSWER=42
a line of output
$ mkdir -p deep && cd deep
$ git clone nowhere && false
$ pip install nothing
$ make test
```
```console
$ test "$ANSWER" = 42 && \\
> test "$(basename "$PWD")" = deep
$ python -c 'import sys; assert sys.prefix != sys.base_prefix'
```
```sql
SELECT nonsense
```
"""


def test_a_page_is_one_namespace_and_one_terminal(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(GOOD)
    page = Page(tmp_path)
    blocks = blocks_of(tmp_path / "page.md")
    assert [block.skipped for block in blocks if block.skipped] == ["it would spoil the answer"]
    page.run_up_to(blocks[-1])
    page.close()
    assert page.python is not None
    assert list(page.went.values()) == [None] * (len(blocks) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```",
        "```python\nraise SystemExit(0)\n```",
        "```python\nnot Python\n```",
        "```python\nimport warnings\nwarnings.warn('soon gone', DeprecationWarning)\n```",
        "```python\n# file: broken.py\n1 / 0\n```",
        "```console\n$ false\n$ true\n```",
        "```console\n$ false | true\n```",
        "```console\n$ make nonsense\n```",
        "```console\nno command\n```",
        "```json\n{,}\n```",
        "```toml\n=\n```",
        "```py\n```",
        "```\nnothing said\n```",
        "    indented",
        "<!-- docs: skip -->\n```python\n```",
        "<!-- docs: skip because  -->\n```python\n```",
    ],
)
def test_a_block_that_is_wrong_fails(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    page = Page(tmp_path)
    [block] = blocks_of(tmp_path / "page.md")
    with pytest.raises((AssertionError, ValueError)):
        page.run_up_to(block)
    page.close()
