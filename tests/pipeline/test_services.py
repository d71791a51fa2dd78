"""Recognisers by name: configured names, names of OpenAI's service, unknown names; and which are
kept in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from core.errors import NotFound, RequestError
from pipeline.services import EngineSet
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from pipeline.speech.file import SpeechFiles
from pipeline.transcription.recogniser import Recogniser
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr, World


class HeldAsr(LevelAsr):
    """A recogniser that counts its holders."""

    holders = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.holders += 1
        try:
            yield
        finally:
            self.holders -= 1


def engines(**asr: Recogniser) -> EngineSet:
    return replace(World().services().engines, asr=asr)


def test_hosted_names_mean_the_default_unless_an_engine_has_that_name() -> None:
    chosen, other, own = LevelAsr(), LevelAsr(), LevelAsr()
    here = engines(default=chosen, tiny=other, **{"whisper-1": own})
    for name in ("gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-realtime-whisper", "default"):
        assert here.recogniser(name) is chosen, name
    assert here.recogniser("tiny") is other
    assert here.recogniser("whisper-1") is own
    assert list(here.recognisers()) == ["tiny", "whisper-1"]


def test_without_strict_names_any_name_means_the_default() -> None:
    chosen, other = LevelAsr(), LevelAsr()
    here = replace(engines(default=chosen, tiny=other), is_strict=False)
    assert here.recogniser("whisper-large-v3") is chosen
    assert here.recogniser("tiny") is other
    assert here.language_model("qwen3:8b") is here.llm["default"]
    assert SpeechFiles(here).voices("kokoro") == here.tts
    with pytest.raises(NotFound, match="allowed: default, tone"):
        SpeechFiles(replace(here, is_strict=True)).voices("kokoro")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pocketspinx", "no model 'pocketspinx'; similar: pocketsphinx; there are: default, "),
        ("xyz", "no model 'xyz'; there are: default, pocketsphinx, faster-whisper-tiny"),
        ("tinny", "similar: faster-whisper-tiny"),
        ("medium", "`earshot models pull medium` fetches it"),
    ],
)
def test_an_unknown_name_is_refused_with_similar_names(name: str, said: str) -> None:
    here = engines(
        default=LevelAsr(), pocketsphinx=LevelAsr(), **{"faster-whisper-tiny": LevelAsr()}
    )
    with pytest.raises(NotFound) as refused:
        here.recogniser(name, param="model")
    assert said in str(refused.value)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


def test_a_recogniser_that_cannot_be_unloaded_needs_no_hold() -> None:
    with engines(default=LevelAsr()).hold("default"):
        pass


def test_a_session_holds_its_recogniser_until_it_changes_it_or_ends() -> None:
    first, second = HeldAsr(), HeldAsr()
    world = World()
    services = replace(world.services(), engines=engines(default=first, other=second, same=second))
    session = Session(SessionSettings(), world.conversations.get(None), "server", services)

    def holders() -> tuple[int, int]:
        return first.holders, second.holders

    async def main() -> None:
        assert holders() == (0, 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            await session.running.wait()
            assert holders() == (1, 0)
            session.configure(replace(session.settings, asr="other"))
            assert holders() == (0, 1)
            session.configure(replace(session.settings, asr="same"))
            session.configure(replace(session.settings, speed=1.5))
            assert holders() == (0, 1)
            with pytest.raises(NotFound):
                session.configure(replace(session.settings, asr="nobody"))
            assert holders() == (0, 1)
            session.close()
        assert holders() == (0, 0)

    run_virtual(main())


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        (SessionSettings(prefix="<|xx|>"), "earshot.transcription.prefix"),
        (SessionSettings(temperature=2), "earshot.transcription.temperature"),
        (SessionSettings(languages=("xx",)), "audio.input.transcription.languages"),
        (SessionSettings(language="xx"), "audio.input.transcription.language"),
    ],
)
def test_an_unsupported_setting_is_refused_by_its_public_name(
    settings: SessionSettings, param: str
) -> None:
    with pytest.raises(RequestError) as refused:
        engines(default=LevelAsr(supports=("prefix",))).check(settings)
    assert refused.value.param == param
