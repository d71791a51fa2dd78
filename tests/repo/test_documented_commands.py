"""Every `earshot` command that the documents show, in an empty environment with the wheel."""

import json
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

from tests.repo.files import repository_files
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("checkout")]

DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        ROOT / "THREAT_MODEL.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/guides/*.md"),
    ]
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(
    r"^(?:\$ )?(?:sudo )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?earshot +([a-z-].*)$", re.MULTILINE
)
_REDIRECTION = re.compile(r" (?:#|>|>>|\||&&) ")
"Words after which the rest of the line is a comment or for the shell."
_PLACEHOLDERS = re.compile(r"[\[\]|]|\.\.\.|\b[A-Z]{2,}\b|  ")
_OPTION = re.compile(r"(?<!\S)\[?(--[a-z][a-z-]+)")

RUN_AS_SHOWN = {"config", "engines list", "extras", "models list", "models list --all"}
"They need no server, no network and no model."

IN_THE_ENVIRONMENT = """
import contextlib, io, json, sys
from server.__main__ import parser_for, main

def answer(call):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = call() or 0
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue()

def parse(words):
    parser_for(words).parse_args(words)

found = {}
for kind, words in json.load(sys.stdin):
    call = (lambda: main(words)) if kind == "run" else (lambda: parse(words))
    found[kind + " " + " ".join(words)] = answer(call)
json.dump(found, sys.stdout)
"""


def _shown() -> Iterator[tuple[str, str]]:
    """Yields each document and the arguments of an `earshot` command in it."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        spans = [code.replace("\n", " ") for code in _CODE.findall(_FENCE.sub("", text))]
        for block in (*_FENCE.findall(text), *spans):
            for rest in _COMMAND.findall(block):
                yield document.name, _REDIRECTION.split(rest)[0].rstrip()


def _actions_of(rest: str) -> list[tuple[str]]:
    """The word after a command, which is an action if the command has some: `block|forget`."""
    return [(word,) for word in "".join(rest.split()[1:2]).split("|") if word.isalpha()]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which pip installed the wheel; it finds the dependencies in ours."""
    folder = tmp_path_factory.mktemp("empty")
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    install = ["-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-deps"]
    run([sys.executable, *install, "--no-index", str(wheel)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def _answers(
    python: Path, folder: Path, asked: list[tuple[str, list[str]]]
) -> dict[str, tuple[int, str]]:
    """Maps each command to its exit code and output."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("EARSHOT_")}
    done = run(
        [str(python), "-c", IN_THE_ENVIRONMENT],
        cwd=folder,
        env=kept | {"XDG_STATE_HOME": str(folder), "HOME": str(folder), "COLUMNS": "200"},
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {command: (code, said) for command, (code, said) in json.loads(done.stdout).items()}


def test_every_documented_command_exists_with_its_options(python: Path, tmp_path: Path) -> None:
    shown = sorted(set(_shown()))
    assert len(shown) > 60
    paths = {(rest.split()[0], *more) for _, rest in shown for more in ((), *_actions_of(rest))}
    helps = _answers(python, tmp_path, [("help", [*path, "--help"]) for path in sorted(paths)])
    wrong = []
    for document, rest in shown:
        command = rest.split()[0]
        code, page = helps[f"help {command} --help"]
        if code:
            wrong.append(f"{document}: earshot {rest}: no command {command}")
        pages = [page]
        if re.search(r"^  (ACTION|WHAT)$", page, re.MULTILINE):
            for (action,) in _actions_of(rest):
                code, page = helps[f"help {command} {action} --help"]
                pages.append(page)
                if code:
                    wrong.append(f"{document}: earshot {rest}: no action {action}")
        wrong += [
            f"{document}: earshot {rest}: no option {option}"
            for option in _OPTION.findall(rest)
            if not any(option in page for page in pages)
        ]
    assert wrong == []


def test_complete_documented_commands_are_parsed(python: Path, tmp_path: Path) -> None:
    whole = {rest for _, rest in _shown() if not _PLACEHOLDERS.search(rest)}
    found = _answers(python, tmp_path, [("parse", shlex.split(rest)) for rest in sorted(whole)])
    assert len(found) > 20
    refused = {
        command: said
        for command, (code, said) in found.items()
        if code and "arguments are required" not in said  # named in a sentence, not shown
    }
    assert refused == {}


def test_commands_without_a_server_run_in_an_empty_environment(
    python: Path, tmp_path: Path
) -> None:
    shown = [" ".join(rest.split()) for _, rest in _shown()]
    assert all(any(one.startswith(command) for one in shown) for command in RUN_AS_SHOWN)
    commands = ["--version", "--help", *sorted(RUN_AS_SHOWN)]
    found = _answers(python, tmp_path, [("run", command.split()) for command in commands])
    assert [command for command, (code, _) in found.items() if code] == []
    assert re.fullmatch(r"earshot \d+\.\d+\.\d+\n", found["run --version"][1])
    assert re.search(r"^mcp +installed", found["run extras"][1], re.MULTILINE)


def test_no_document_installs_another_project() -> None:
    """The package `earshot` of the package index is another project."""
    told = re.compile(r"pip install [^`\n]*\bearshot(?!-server)|\bearshot\[")
    found = [
        str(path)
        for path in repository_files()
        if path.suffix in {".md", ".py", ".sh", ".yaml", ".toml", ".html", ".js"}
        and path.parts[0] != "tests"
        and path.parts[:2] not in {("docs", "adr"), ("docs", "history")}
        and path.name != "CHANGELOG.md"
        and told.search((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert found == []
