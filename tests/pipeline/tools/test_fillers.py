"""The sentences that are said while a tool is slow."""

import asyncio
from itertools import pairwise

import pytest

from core.errors import EarshotError, EngineUnreachable, OverloadedError
from pipeline.tools.fillers import (
    SPOKEN_CHARS_PER_S,
    Fillers,
    FillerSentences,
    SilenceTimer,
    bundled_fillers,
)
from tests.loop import run_virtual

LANGUAGES = ("en", "de", "fr", "es")


class Conversation:
    """Records what is said, and when."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []
        self.fillers = Fillers()
        self.deaf_until_s = 0.0

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.said]

    def say(self, text: str) -> bool:
        now = asyncio.get_running_loop().time()
        is_heard = now >= self.deaf_until_s
        if is_heard:
            self.said.append((now, text))
        return is_heard

    def silence(self, language: str = "en") -> SilenceTimer:
        return SilenceTimer(self.say, self.fillers, language)

    async def wait(self, seconds: float, language: str = "en") -> None:
        """Runs an answer with one round of tools."""
        with self.silence(language) as silence:
            silence.begin()
            await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    ("seconds", "times"),
    [(0, []), (1.4, []), (3, [1.5]), (8, [1.5, 6]), (17, [1.5, 6, 16]), (60, [1.5, 6, 16])],
)
def test_fillers_are_spoken_during_slow_work_only(seconds: float, times: list[float]) -> None:
    conversation = Conversation()

    async def main() -> None:
        await conversation.wait(seconds)
        await asyncio.sleep(20)

    run_virtual(main())
    assert conversation.times == times


@pytest.mark.parametrize("seconds", [1.4, 1.6])
def test_rounds_of_tools_count_as_one_silence(seconds: float) -> None:
    conversation = Conversation()

    async def main() -> None:
        with conversation.silence() as silence:
            for _ in range(5):
                silence.begin()
                await asyncio.sleep(seconds)

    run_virtual(main())
    assert conversation.times == [1.5, 6]
    assert len({text for _, text in conversation.said}) == 2


def test_text_between_tool_calls_ends_the_silence() -> None:
    conversation, preamble = Conversation(), "Let me look into the oven first. "

    async def main() -> None:
        with conversation.silence() as silence:
            silence.begin()
            await asyncio.sleep(1)
            silence.on_text(preamble)
            await asyncio.sleep(10)  # it writes slowly, and no filler interrupts it
            silence.on_text(preamble)
            silence.begin()
            silence.on_text(" ")
            await asyncio.sleep(8)

    run_virtual(main())
    quiet_from = 11 + len(preamble) / SPOKEN_CHARS_PER_S
    assert conversation.times == pytest.approx([quiet_from + 1.5, quiet_from + 6])


def test_a_filler_that_could_not_be_said_is_said_later() -> None:
    conversation = Conversation()
    conversation.deaf_until_s = 3.0
    run_virtual(conversation.wait(8))
    assert conversation.times == [3.0, 7.5]
    assert conversation.said[0][1] == bundled_fillers()["en"].waiting[0]


def test_fillers_take_turns() -> None:
    conversation = Conversation()

    async def main() -> None:
        for _ in range(4):
            await conversation.wait(2)

    run_virtual(main())
    said = [text for _, text in conversation.said]
    assert len(set(said)) == 3
    assert said[0] == said[3]


def test_a_language_without_sentences_gets_the_english_ones() -> None:
    conversation, english = Conversation(), bundled_fillers()["en"]
    run_virtual(conversation.wait(8, "is"))
    assert conversation.said == [(1.5, english.waiting[0]), (6, english.still_waiting[0])]
    assert conversation.fillers.failed("is") == english.failed[0]


def test_no_filler_follows_a_cancellation() -> None:
    conversation = Conversation()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await conversation.wait(8)
        await asyncio.sleep(20)

    run_virtual(main())
    assert conversation.said == []


@pytest.mark.parametrize("language", sorted({*LANGUAGES, *bundled_fillers()}))
@pytest.mark.parametrize("kind", ["waiting", "still_waiting", "failed"])
def test_every_language_has_enough_sentences_to_repeat_none_directly(
    language: str, kind: str
) -> None:
    sentences = bundled_fillers()[language]
    choices = getattr(sentences, kind)
    assert len(set(choices)) == len(choices) >= 2
    fillers = Fillers()
    said = [getattr(fillers, kind)(language) for _ in range(9)]
    assert all(a != b for a, b in pairwise(said))


def test_sentences_can_be_configured() -> None:
    mine = Fillers({"en": FillerSentences(("Hm.",), ("Hmm.",), ("Oh.",))})
    assert (mine.waiting("en"), mine.still_waiting("en"), mine.failed("en")) == (
        "Hm.",
        "Hmm.",
        "Oh.",
    )


@pytest.mark.parametrize(
    "error", [EngineUnreachable("llm", "x"), OverloadedError("full", retry_after_s=1)]
)
@pytest.mark.parametrize("language", sorted({*LANGUAGES, *bundled_fillers(), "xx"}))
def test_every_language_has_an_apology_for_an_unavailable_model(
    error: EarshotError, language: str
) -> None:
    sentences = bundled_fillers().get(language, bundled_fillers()["en"])
    own = sentences.busy if isinstance(error, OverloadedError) else sentences.away
    assert Fillers().apology(error, language) == (own or sentences.failed)[0]
