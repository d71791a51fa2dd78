"""docs/trouble.md: the program really says what the page quotes, in the situation that it names.

A new row of a table needs a situation here. The page's messages are shown in their situations by
tests/web; here they are compared with the page's words.
"""

import re
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import run as run_program

import pytest

from server.commands.engines.pip import failure
from tests.server.process import environment, run
from tests.shared import ROOT

pytestmark = pytest.mark.live

TROUBLE = (ROOT / "docs" / "trouble.md").read_text(encoding="utf-8")
WORDS = (ROOT / "web" / "static" / "words" / "en.js").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Maps what is seen to the reason and the cure, in the table below a heading."""
    section = TROUBLE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return {seen.strip("| "): (why, cure.strip("| ")) for seen, why, cure in cells[2:]}


def _port_taken(folder: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run(folder, "serve", "--port", str(port)).stderr
    return said.replace(str(port), "8080")


def _old_python(folder: Path) -> str:
    """Runs the installer where PATH has no Python that is new enough."""
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("dirname", "cat", "getconf", "uname", "sort", "head", "tr", "sed"):
        found = next(
            Path(place) / tool for place in ("/usr/bin", "/bin") if (Path(place) / tool).exists()
        )
        (tools / tool).symlink_to(found)
    done = run_program(
        ["/bin/bash", str(ROOT / "scripts" / "install.sh")],
        env={"PATH": str(tools), "VENV": str(folder / "venv")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def _misspelt(folder: Path) -> str:
    (folder / "earshot.toml").write_text("[turn]\nsilents_ms = 400\n")
    said = run(folder, "config").stderr
    assert "silence_ms" in said  # the right one is named
    return said


def _no_recogniser(folder: Path) -> str:
    """A Python without PocketSphinx and without Whisper's weights."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['pocketsphinx'] = None\n")
    settings = {"PYTHONPATH": f"{folder}:{ROOT}", "EARSHOT_MODELS_DIR": str(folder / "models")}
    ended = run_program(
        [sys.executable, "-m", "server", "serve", "--port", "0"],
        cwd=folder,
        env=environment(folder, **settings),
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stderr + ended.stdout


def _no_index(folder: Path) -> str:
    """Returns what the installer says of a pip without a network; test_install_failures.py runs
    it."""
    return str(failure(["WARNING: connection broken by 'NewConnectionError(...)'"]))


START: dict[str, Callable[[Path], str]] = {
    "is in use by another program": _port_taken,
    "no Python >= 3.11 found on PATH": _old_python,
    "the package index cannot be reached": _no_index,
    "earshot: config.turn: unknown key": _misspelt,
    "no asr engine can be used": _no_recogniser,
}


def test_every_row_about_the_start_has_a_situation() -> None:
    shown = list(rows("It does not start"))
    assert len(shown) == len(START)
    assert all(any(words in one for one in shown) for words in START), shown


@pytest.mark.parametrize("words", START)
def test_the_start_says_what_the_page_quotes(words: str, tmp_path: Path) -> None:
    (quoted,) = [one for one in rows("It does not start") if words in one]
    said = START[words](tmp_path)
    for part in quoted.strip("`").split("..."):
        assert part.strip() in said, said


def test_the_page_says_what_the_table_about_it_quotes() -> None:
    quoted = re.findall(r'"([^"]+)"', "\n".join(rows("The page does not get the microphone")))
    quoted += re.findall(r'[Tt]he page shows "([^"]+)"', TROUBLE)
    assert len(quoted) == 5
    assert [one for one in quoted if one not in WORDS] == []


def test_the_named_settings_and_buttons_exist(tmp_path: Path) -> None:
    shown = tomllib.loads(run(tmp_path, "config").stdout)
    for table, key in re.findall(r"`(\w+)\.(\w+) = ", TROUBLE):
        assert key in shown[table], f"{table}.{key}"
    for name in re.findall(r"\*\*([^*.]+)\*\*", TROUBLE):
        assert f'"{name}"' in WORDS, name
