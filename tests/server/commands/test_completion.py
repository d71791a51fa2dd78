"""`earshot completion`: the shells themselves complete commands, actions, options and files."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from subprocess import run

import pytest

from server.__main__ import main
from server.commands.completion import SHELLS, script
from tests.conftest import require

pytestmark = pytest.mark.live

IN_BASH = """
source "$0"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
function=$(complete -p earshot | sed -E 's/.*-F ([^ ]+).*/\\1/')
"$function"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"Does what bash does when Tab is pressed. The file of the script is $0, the words are the rest."


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "earshot.bash"
    file.write_text(script("bash"))
    return file


def _completed(bash_script: Path, *words: str, folder: Path | None = None) -> set[str]:
    """Returns what bash offers for the last word."""
    require(shutil.which("bash"), "bash")
    command = ["bash", "--norc", "-c", IN_BASH, str(bash_script), *words]
    done = run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return {line.strip() for line in done.stdout.splitlines()} - {""}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["earshot", "dev"], {"devices"}),
        (["earshot", "re"], {"replay", "restore"}),
        (["earshot", "service", ""], {"install", "uninstall", "status"}),
        (["earshot", "service", "install", "--p"], {"--print"}),
        (["earshot", "models", "pu"], {"pull"}),
        (["earshot", "completion", "f"], {"fish"}),
        (["earshot", "serve", "--lo"], {"--log-level"}),
        (["earshot", "nosuch"], set()),
    ],
)
def test_bash_completes_commands_and_options(
    bash_script: Path, words: Sequence[str], offered: set[str]
) -> None:
    found = _completed(bash_script, *words)
    assert offered <= found
    assert all(word.startswith(words[-1]) for word in found)
    assert bool(found) == bool(offered)


@pytest.mark.parametrize("words", [["serve", "--config"], ["restore"]])
def test_bash_completes_files(bash_script: Path, tmp_path: Path, words: Sequence[str]) -> None:
    (tmp_path / "home.toml").touch()
    assert "home.toml" in _completed(bash_script, "earshot", *words, "ho", folder=tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_reads_its_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert "uninstall" in printed
    require(shutil.which(shell), shell)
    file = tmp_path / "script"
    file.write_text(printed)
    done = run([shell, "-n", str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
    assert "choose from" in capsys.readouterr().err
