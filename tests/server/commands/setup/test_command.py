"""`earshot setup` with scripted answers, and with `--set`."""

import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from server.__main__ import main
from server.commands.exit_codes import ExitCode
from server.commands.setup import questions
from server.config.load import load
from server.settings.language_models import LanguageModelAnswer, LanguageModelTest

pytestmark = pytest.mark.live

FILE = "# ours\n[assistant]\nspeed = 1.1  # quick\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EARSHOT_TTS__ENGINE", "espeak")  # quick to load
    file = tmp_path / "earshot.toml"
    file.write_text(FILE)
    return file


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_answers_are_shown_confirmed_and_written(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("n", "http://127.0.0.1:9/v1", "qwen", "sk-typed", "y")
    answer(monkeypatch, "de", *model, "", "y", "y")
    assert main(["setup"]) == ExitCode.OK
    said = capsys.readouterr().err
    assert "no answer" in said  # of the test, as nothing listens there
    assert '+language = "de"' in said
    assert "+api_key" in said
    assert "Written to" in said
    text = file.read_text()
    assert "speed = 1.1  # quick" in text
    config = load({}).config
    assert config.language == "de"
    assert config.llm.engine == "hybrid"
    assert config.llm.options["model"]["options"] == {
        "base_url": "http://127.0.0.1:9/v1",
        "model": "qwen",
        "api_key": "sk-typed",
    }
    assert (config.server.host, config.server.tls) == ("0.0.0.0", "auto")


def test_enter_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "", "", "n", "", "", "")
    assert main(["setup"]) == ExitCode.OK
    assert file.read_text() == FILE


def test_what_is_not_confirmed_is_not_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "de", "n", "", "", "", "n")
    assert main(["setup"]) == ExitCode.CANNOT_RUN
    assert file.read_text() == FILE


def test_answers_that_end_write_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "de")
    assert main(["setup"]) == ExitCode.USAGE
    assert file.read_text() == FILE


def test_flags_write_without_a_question(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "turn.silence_ms=700", "--set", "server.allowed_hosts=a.lan, b.lan"]
    arguments += ["--set", "assistant.instructions=Be brief.", "--unset", "assistant.speed"]
    assert main(["setup", "--yes", "--json", *arguments]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["is_saved"]
    assert "+silence_ms = 700" in told["diff"]
    config = load({}).config
    assert (config.turn.silence_ms, config.assistant.speed) == (700, 1.0)
    assert config.server.allowed_hosts == ("a.lan", "b.lan")
    assert config.assistant.instructions == "Be brief."


def test_an_entry_of_an_open_table_is_written_in_the_type_that_it_has(file: Path) -> None:
    names = {"command": "123", "args": "--root, /srv/files", "env.PORT": "1"}
    flags = [part for key, text in names.items() for part in ("--set", f"tools.mcp.f.{key}={text}")]
    assert main(["setup", "--yes", "--json", *flags]) == ExitCode.OK
    server = load({}).config.tools.mcp["f"]
    assert (server.command, server.args) == ("123", ("--root", "/srv/files"))
    assert server.env == {"PORT": "1"}
    assert main(["setup", "--yes", "--set", 'tools.mcp.f.args=["a, b"]']) == ExitCode.OK
    assert load({}).config.tools.mcp["f"].args == ("a, b",)
    assert main(["setup", "--yes", "--set", "tools.mcp.f.args="]) == ExitCode.OK
    assert load({}).config.tools.mcp["f"].args == ()
    assert load({"EARSHOT_TOOLS__MCP__F__ARGS": "a,b"}).config.tools.mcp["f"].args == ("a", "b")
    assert load({"EARSHOT_PROMPTS__P__TEXT": "7"}).config.prompts["p"].text == "7"


def test_json_without_yes_only_shows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--json", "--set", "turn.silence_ms=700"]) == ExitCode.OK
    assert not json.loads(capsys.readouterr().out)["is_saved"]
    assert file.read_text() == FILE


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("turn.silence_ms=7", "expected int in [100, 5000], got 7"),
        ("turn.silents_ms=700", "did you mean turn.silence_ms?"),
        ("turn=1", "unknown setting"),
        ("turn.silence_ms", "expected KEY=VALUE"),
        ("assistant.voice=nobody", "no voice 'nobody'"),
        ("tts.engine=hibari", "EARSHOT_TTS__ENGINE overrides the file"),
    ],
)
def test_a_wrong_value_is_named(
    file: Path, capsys: pytest.CaptureFixture[str], flag: str, said: str
) -> None:
    assert main(["setup", "--yes", "--set", flag]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert file.read_text() == FILE


def test_the_test_answer_is_spoken_where_there_is_a_loudspeaker(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answered(asked: LanguageModelTest, key: str) -> LanguageModelAnswer:
        return LanguageModelAnswer("Hello there.", asked.model, 5, 9)

    monkeypatch.setattr(questions, "test_language_model", answered)
    played: list[float] = []

    class Speaker(ModuleType):
        class PortAudioError(Exception):
            pass

        def play(self, pcm: np.ndarray[Any, Any], rate_hz: int, *, blocking: bool) -> None:
            if played:
                raise self.PortAudioError("Error querying device -1")
            assert blocking
            assert np.abs(pcm).max() > 1000
            played.append(len(pcm) / rate_hz)

    monkeypatch.setitem(sys.modules, "sounddevice", Speaker("sounddevice"))
    said = []
    for _ in range(2):
        answer(monkeypatch, "", "", "n", "http://127.0.0.1:9/v1", "qwen", "", "y", "", "", "n")
        assert main(["setup"]) == ExitCode.CANNOT_RUN
        said.append(capsys.readouterr().err)
        assert "qwen says after 9 ms: Hello there." in said[-1]
    assert 0.4 < played[0] < 2
    assert "It is not spoken" not in said[0]
    assert "It is not spoken: the loudspeaker cannot be used: Error querying device" in said[1]
    assert file.read_text() == FILE
