"""Does what a page of the documentation says, block by block, as a reader would.

| block of the page | what is done |
|---|---|
| ` ```sh ` | each line is run in a shell; `make run` goes on until the next `make run` |
| ` ```toml ` or ` ```python ` whose first line is `# FILE` | the file is written into the folder |
| ` ```text ` | the program has just printed these lines; `...` stands for anything |

Blocks of other kinds are for reading.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from threading import Event, Thread

from tests.shared import ROOT

COMMAND_S = 120.0
READY_S = 90.0
STOP_S = 20.0  # longer than the server drains

STARTS = re.compile(r"^(?:[A-Z]+=\S+ )*make run\b")
"A line that starts the server, and leaves it running."

MAKEFILE = """\
run:
\t@exec .venv/bin/earshot serve $(if $(HOST),--host $(HOST)) $(ARGS)
"""
"A Makefile that only starts the server; test_real_install.py follows the installation."

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FILE = re.compile(r"# (\S+\.\w+)$")


@dataclass(frozen=True)
class Block:
    """A block of code, and the heading above it."""

    heading: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of code of a page, in order, without their indentation."""
    text = page.read_text(encoding="utf-8")
    code = list(_BLOCK.finditer(text))
    headings = [
        (found.start(), found[1])
        for found in _HEADING.finditer(text)
        if not any(one.start() < found.start() < one.end() for one in code)
    ]
    return [
        Block(
            heading=next((name for at, name in reversed(headings) if at < one.start()), ""),
            language=one[2],
            text=re.sub(rf"^{one[1]}", "", one[3], flags=re.MULTILINE),
        )
        for one in code
    ]


@dataclass
class Reader:
    """Somebody who follows pages in one folder."""

    folder: Path
    environment: Mapping[str, str]
    replaced: dict[str, str] = field(default_factory=dict)
    "Text that a reader replaces, such as a token or an address -> its value in this test."

    printed: str = ""
    "The output of the last command."

    _server: Popen[str] | None = None
    _said: list[str] = field(default_factory=list)

    def follow(self, page: Path, after: Mapping[str, Callable[[], object]] | None = None) -> None:
        """Does everything that the page shows; raises AssertionError where it does not hold.

        `after`: heading -> what a reader does by hand when the blocks below it are done.
        """
        after = dict(after or {})
        shown = blocks(page)
        assert shown, page
        for block, next_one in zip(shown, [*shown[1:], None], strict=True):
            self.do(block)
            if next_one is None or next_one.heading != block.heading:
                after.pop(block.heading, lambda: None)()
        assert not after, f"{page.name} has no blocks below {list(after)}"

    def do(self, block: Block) -> None:
        """Does what one block shows."""
        for shown, value in self.replaced.items():
            block = Block(block.heading, block.language, block.text.replace(shown, value))
        if block.language == "sh":
            for line in block.lines:
                self.run(line)
        elif block.language == "text":
            self._compare(block)
        elif named := _FILE.match(block.lines[0]):
            path = self.folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")

    def run(self, line: str) -> None:
        """Runs a line in a shell; it must succeed."""
        if STARTS.match(line):
            self.stop()
            self._start(line)
            return
        done = run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        self.printed = done.stdout
        assert done.returncode == 0, f"{line}\n{done.stdout}"

    def stop(self) -> None:
        """Presses Ctrl-C in the terminal of the server, if one runs."""
        if (server := self._server) is not None:
            self._server = None
            os.killpg(server.pid, signal.SIGINT)
            server.wait(timeout=STOP_S)

    def said(self) -> str:
        """Returns what the server has printed."""
        return "\n".join(self._said)

    def _start(self, line: str) -> None:
        self._said = said = list[str]()
        self._server = server = Popen(
            ["bash", "-c", f"exec env {line}"],
            cwd=self.folder,
            env=dict(self.environment),
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            process_group=0,  # Ctrl-C reaches make and the server
        )
        is_ready = Event()

        def read() -> None:
            assert server.stdout is not None
            for text in server.stdout:
                said.append(text.rstrip())
                if " ready in " in text:
                    is_ready.set()
            is_ready.set()

        Thread(target=read, daemon=True).start()
        assert is_ready.wait(READY_S), said
        self.printed = self.said()
        assert " ready in " in self.printed, self.printed

    def _compare(self, block: Block) -> None:
        missing = missing_lines(block.text, self.printed)
        assert not missing, f"{block.heading}: {missing} is not in:\n{self.printed}"


def missing_lines(shown: str, printed: str) -> list[str]:
    """Returns the shown lines that are not printed, in this order; `...` stands for anything."""
    missing, rest = [], printed.splitlines()
    for line in filter(None, map(str.strip, shown.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        at = next((i for i, text in enumerate(rest) if pattern.fullmatch(text.strip())), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1 :]
    return missing


@contextmanager
def reading(folder: Path, port: int, **settings: str) -> Iterator[Reader]:
    """Yields a reader whose folder is a checkout with everything installed.

    Its server listens on `port`, which pages call 8080.
    """
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("EARSHOT_", "MAKE"))}
    environment = kept | {
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
        "EARSHOT_SERVER__PORT": str(port),
        "EARSHOT_MODELS_DIR": str(folder / "models"),
        **settings,
    }
    reader = Reader(folder, environment, {":8080": f":{port}"})
    try:
        yield reader
    finally:
        reader.stop()
