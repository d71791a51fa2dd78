"""Agents of LiveKit, pipecat and OpenAI, as their registries have them, against a server."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.audio import AudioFrame
from media.files.decode import write_wav
from tests.clients.programs import python_with, told_by
from tests.clients.scripted_server import LONG, answering
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("npm")]

PROGRAMS = Path(__file__).parent / "agents"
RATE_HZ = 24_000


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with exactly the locked clients."""
    return python_with(PROGRAMS / "requirements.txt", tmp_path_factory.mktemp("agents"))


def told(folder: Path, *program: str | Path) -> Any:
    """Runs the client against a server with a scripted model; returns what it printed."""
    clip = folder / "clip.wav"
    pcm = say("turn on the kitchen light", rate_hz=RATE_HZ, lead_ms=200, tail_ms=200)
    write_wav(clip, [AudioFrame(pcm, RATE_HZ, 0)])
    with answering(folder) as server:
        return told_by(folder, *program, server.url, clip)


def test_livekit_agents_work_with_our_server(python: Path, tmp_path: Path) -> None:
    got = told(tmp_path, python, PROGRAMS / "livekit_client.py")
    assert got["called"] == ["set_light", {"on": True}]
    assert got["words"] == ["One moment."]
    assert got["samples"] > RATE_HZ / 2
    assert got["result"] == ["It says on."]
    assert "light" in got["heard"][0].lower()
    assert got["spoken"] == ["One moment."]
    assert got["counted"] == [LONG]
    cut = got["interrupted"]
    assert (cut["running"], cut["status"], cut["item"]) == (True, "cancelled", "incomplete")
    assert LONG.startswith(cut["left"])
    assert 0 < len(cut["left"]) < 12  # of 300 ms
    assert got["errors"] == 0
    assert got["refused"] == "item_truncate_invalid_item_id"


def test_livekits_gpt_live_works_with_our_server(python: Path, tmp_path: Path) -> None:
    got = told(tmp_path, python, PROGRAMS / "livekit_live_client.py")
    assert got["called"] == ["set_light", {"on": True}]
    assert got["said"] == "One moment. It says on."
    assert "light" in got["heard"][0].lower()
    assert got["samples"] > RATE_HZ / 2
    assert got["errors"] == []


def test_pipecat_works_with_our_server(python: Path, tmp_path: Path) -> None:
    got = told(tmp_path, python, PROGRAMS / "pipecat_client.py")
    assert got["called"] == [{"on": True}] * 3
    assert "One moment." in got["written"]
    assert "It says on." in got["spoken"]
    for said, whole in ((got["stopped"], LONG), (got["spoken_over"], f"{LONG} {LONG}")):
        assert whole.startswith(said)
        assert 0 < len(said) < len(whole)
    assert "item_nowhere" in got["unknown"]
    assert got["before"] == []
    assert "item_delete_invalid_item_id" in got["errors"][0]


def test_openai_python_works_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    programs = PROGRAMS.parent / "openai_py"
    folder = tmp_path_factory.mktemp("openai_py")
    python = python_with(programs / "requirements.txt", folder)
    got = told(tmp_path, python, programs / "client.py")
    assert got["version"].startswith("3.52.")
    assert "kitchen light" in got["speech"]["heard"][0].lower()
    assert got["speech"]["said"] == ["One moment."]
    assert got["speech"]["soundBytes"] > RATE_HZ
    assert got["speech"]["called"] == ["set_light", {"on": True}, "It says on."]
    assert got["text"]["said"] == "One moment."
    assert json.loads(got["text"]["arguments"]) == {"on": True}
    assert got["text"]["called"][2] == "It says on."
    assert got["interrupted"]["status"] == ["cancelled", "client_cancelled", "incomplete"]
    assert LONG.startswith(got["interrupted"]["left"])
    assert 0 < len(got["interrupted"]["left"]) < 12  # of 300 ms
    assert got["error"] == ["error", "response_cancel_not_active", "late", "completed"]


def test_openai_agents_in_python_use_our_responses(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    programs = PROGRAMS.parent / "openai_agents"
    folder = tmp_path_factory.mktemp("openai_agents")
    python = python_with(programs / "requirements.txt", folder)
    with answering(tmp_path) as server:
        got = told_by(tmp_path, python, programs / "client.py", server.url)
    assert got["assistant"] == got["default"] == ["It says on.", LONG, "It says on."]
    assert got["called"] == [True] * 4


def test_openai_agents_in_node_work_with_our_server(agents_js: Path, tmp_path: Path) -> None:
    got = told(tmp_path, "node", agents_js / "client.mjs")
    assert got["called"] == [{"on": True}, {"on": True}]
    assert got["calledBySpeech"] == 2
    assert got["written"] == ["One moment.", "It says on."]
    assert got["audioBytes"] > 2 * RATE_HZ
    assert LONG.startswith(got["cut"])
    assert 0 < len(got["cut"]) < len(LONG)
    assert (got["before"], got["codes"]) == (0, ["unknown_event_type"])  # the one provoked
