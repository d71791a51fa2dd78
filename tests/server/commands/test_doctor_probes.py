"""The probes of `earshot doctor`, and when it reports that there will be no answer."""

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.audio import AudioFrame
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    Llm,
    LlmOptions,
    Message,
    TextDelta,
    Tts,
    TtsInfo,
    WordMark,
)
from engines.llm import hybrid, intents
from engines.llm.hybrid import HybridLlm
from engines.llm.openai import Settings, create
from pipeline.tools.mcp import McpServerSettings
from server.commands import doctor_probes
from server.commands.doctor_probes import ProbeResult, probe_all, probe_disk
from server.compose.prompt_size import known_tools, prompt_size
from server.config import Config, PathsConfig
from server.config.sections.assistant import AssistantConfig
from server.config.sections.home_assistant import HomeAssistantConfig
from server.config.sections.tools import ToolsConfig
from tests.engines.llm.openai.completions_server import Server, refuses, sends, sse, text
from tests.pipeline.fakes import ToneTts
from tests.ports import reserved_port

pytestmark = pytest.mark.live

FINE = PathsConfig(state_dir="/tmp", models_dir="/tmp")
VOICES: dict[str, Tts] = {"tone": ToneTts()}


@pytest.fixture(autouse=True)
def _quiet_logger_is_loud_again() -> Iterator[None]:
    """Restores a logger that `doctor` silences: later tests of this worker read its lines."""
    yield
    logging.getLogger("pipeline.tools.mcp.client").setLevel(logging.NOTSET)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


def probed(
    llm: Llm | None = None, voices: dict[str, Tts] | None = None, **sections: Any
) -> list[ProbeResult]:
    config = Config(**{"paths": FINE, **sections})
    return asyncio.run(probe_all(config, llm, {} if voices is None else voices))


def first(*args: Any, **sections: Any) -> ProbeResult:
    return probed(*args, **sections)[0]


def asked(server: Server, *, behind: bool = False, **settings: Any) -> ProbeResult:
    async def scenario() -> ProbeResult:
        async with server.running():
            llm: Llm = create(Settings(base_url=server.url, **settings))
            if behind:
                llm = HybridLlm(intents.create(intents.Settings()), llm)
            found = await probe_all(Config(paths=FINE), llm, {})
            return found[0]

    return asyncio.run(scenario())


@pytest.mark.parametrize("behind", [False, True])
def test_an_answering_model_is_named(behind: bool) -> None:
    server = Server(models={"data": [{"id": "tiny", "max_model_len": 4096}]})
    found = asked(server, behind=behind, model="tiny")
    assert found.verdict == "ok"
    assert "tiny at http://127.0.0.1" in found.what
    assert "4096 tokens" in found.what
    assert len(server.bodies) == 1


@pytest.mark.parametrize("behind", [False, True])
def test_a_refused_port_fails(behind: bool, closed_port: int) -> None:
    model: Llm = create(Settings(base_url=f"http://127.0.0.1:{closed_port}/v1", model="qwen3:4b"))
    llm = HybridLlm(intents.create(intents.Settings()), model) if behind else model
    found = first(llm)
    assert found.verdict == "fail"
    assert "Connection refused" in found.what
    assert "start its server, or correct base_url" in found.what


def test_a_model_missing_on_its_server_fails_with_the_listed_ones() -> None:
    server = Server(models={"data": [{"id": "qwen3:8b"}, {"id": "llama3:latest"}]})
    found = asked(server, model="qwen3:4b")
    assert found.verdict == "fail"
    assert "no model 'qwen3:4b'; it has: llama3:latest, qwen3:8b" in found.what
    assert not server.bodies
    assert asked(server, model="llama3").verdict == "ok", "Ollama's short names"


def test_a_server_with_one_model_accepts_any_name() -> None:
    server = Server(models={"data": [{"id": "/srv/a.gguf", "owned_by": "llamacpp"}]})
    assert asked(server, model="whatever").verdict == "ok"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refuses(401, {"error": "no key"}), "wants another key"),
        (refuses(404, {"error": "no"}), "does not know this model"),
        (sends(sse(*text(""))), "without a word"),
    ],
)
def test_a_model_server_that_returns_no_word_fails(answer: Any, said: str) -> None:
    found = asked(Server(answer, models={"data": [{"id": "tiny"}]}))
    assert found.verdict == "fail"
    assert said in found.what


class OddLlm:
    """A third-party engine without a probe of its own."""

    name = "odd"
    languages: tuple[str, ...] = ()
    context_tokens: int | None = None

    def __init__(self, wait_s: float = 0, bug: Exception | None = None) -> None:
        self._wait_s, self._bug = wait_s, bug

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta, None]:
        await asyncio.sleep(self._wait_s)
        if self._bug:
            raise self._bug
        yield TextDelta("Hello.")


def test_a_third_party_engine_is_probed_too() -> None:
    assert first(OddLlm()) == ProbeResult("ok", "llm: odd answers")
    assert first(OddLlm(bug=KeyError("x"))) == ProbeResult(
        "fail", f"llm: KeyError: 'x'{doctor_probes.LLM_ADVICE}"
    )


def test_hanging_probes_end_at_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_probes, "LLM_LIMIT_S", 0.05)
    monkeypatch.setattr(doctor_probes, "VOICE_LIMIT_S", 0.05)
    model, voice = probed(OddLlm(wait_s=60), {"odd": OddTts(wait_s=60)})[:2]
    assert (model.verdict, voice.verdict) == ("fail", "fail")
    assert model.what.startswith("llm: no answer within 0.05 s; ")
    assert voice.what.startswith("tts: no answer within 0.05 s; ")


def test_model_servers_that_earshot_starts_are_not_probed() -> None:
    llm = OddLlm(bug=ValueError("never asked"))
    llm.name = "transformers"
    assert first(llm).verdict == "note"
    assert first(intents.create(intents.Settings())).verdict == "ok"


class OddTts:
    """A voice that yields the given audio."""

    info = TtsInfo("odd", 16_000, {"en": ("low",)})

    def __init__(self, wait_s: float = 0, bug: Exception | None = None) -> None:
        self._wait_s, self._bug = wait_s, bug

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        await asyncio.sleep(self._wait_s)
        if self._bug:
            raise self._bug
        silent: tuple[AudioFrame, ...] = ()
        for frame in silent:
            yield frame


@pytest.mark.parametrize(
    ("voices", "assistant", "verdict", "said"),
    [
        (VOICES, {}, "ok", "tone speaks 'en' with the voice low"),
        ({"odd": OddTts()}, {}, "fail", "'Hello.' has no sound"),
        ({"odd": OddTts(bug=ValueError("broken"))}, {}, "fail", "ValueError: broken"),
        (VOICES, {"voice": "nobody"}, "fail", "no voice 'nobody'"),
    ],
)
def test_the_configured_voice_must_speak_a_word(
    voices: dict[str, Tts], assistant: dict[str, Any], verdict: str, said: str
) -> None:
    found = first(None, voices, assistant=AssistantConfig(**assistant))
    assert found.verdict == verdict
    assert said in found.what


def test_a_language_without_a_voice_is_text_only() -> None:
    found = first(None, VOICES, language="cs")
    assert found.verdict == "note"
    assert "only written" in found.what


def test_a_missing_mcp_server_costs_only_its_tools(closed_port: int) -> None:
    servers = {
        "gone": McpServerSettings(url=f"http://127.0.0.1:{closed_port}/mcp"),
        "ends": McpServerSettings(command=sys.executable, args=("-c", "")),
    }
    gone, ends = probed(tools=ToolsConfig(mcp=servers))[:2]
    assert (gone.verdict, ends.verdict) == ("note", "note")
    assert gone.what.startswith("mcp gone: ")
    assert gone.what.endswith("its tools are missing")


def test_an_unreachable_home_assistant_is_a_note(closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    found = first(home_assistant=HomeAssistantConfig(url=url, token="secret-token"))
    assert found.verdict == "note"
    assert url in found.what
    assert "secret-token" not in found.what


def test_free_space_is_checked_where_the_folder_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "not" / "yet"
    assert probe_disk("state_dir", str(later)).verdict == "ok"
    (tmp_path / "file").touch()
    assert probe_disk("state_dir", str(tmp_path / "file" / "x")).verdict == "fail"

    def free(mb: int) -> None:
        usage = type("Usage", (), {"free": mb * 2**20})
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    free(100)
    assert probe_disk("state_dir", str(later)) == ProbeResult(
        "note", f"paths.state_dir {later}: only 100 MB are free"
    )
    free(3)
    assert probe_disk("state_dir", str(later)).verdict == "fail"
    assert probe_disk("models_dir", str(later)).verdict == "note"


def test_tools_and_instructions_must_fit_the_context_window() -> None:
    config = Config()
    tools = known_tools(config)
    assert len(tools) == 28
    llm = OddLlm()
    assert prompt_size(config, llm, tools) is None
    llm.context_tokens = 4096
    size = prompt_size(config, llm, tools)
    assert size is not None
    assert not size.fits
    assert "of 4096 for the conversation" in size.advice()
    engine = HybridLlm(intents.create(intents.Settings()), llm)
    one = prompt_size(config, llm, engine.filter_tools(tools, language="en"))
    assert one is not None
    assert one.fits
    assert one.tools == 1
    few = Config(assistant=AssistantConfig(tools=("HassStartTimer", "HassGetCurrentTime")))
    assert {tool.name for tool in known_tools(few)} == set(few.assistant.tools or ())


def test_the_model_of_the_hybrid_engine_is_probed() -> None:
    assert hybrid.NAME == "hybrid"
    assert first(HybridLlm(intents.create(intents.Settings()), OddLlm())).what == "llm: odd answers"
