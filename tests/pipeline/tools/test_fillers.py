"""Fillers while a tool is slow, and apologies."""

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
    """Records the spoken fillers with their times."""

    def __init__(self) -> None:
        self.spoken: list[tuple[float, str]] = []
        self.fillers = Fillers()
        self.blocked_until_s = 0.0

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.spoken]

    def say(self, text: str) -> bool:
        now = asyncio.get_running_loop().time()
        is_spoken = now >= self.blocked_until_s
        if is_spoken:
            self.spoken.append((now, text))
        return is_spoken

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
    assert len({text for _, text in conversation.spoken}) == 2


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


def test_a_filler_that_cannot_be_spoken_yet_is_spoken_later() -> None:
    conversation = Conversation()
    conversation.blocked_until_s = 3.0
    run_virtual(conversation.wait(8))
    assert conversation.times == [3.0, 7.5]
    assert conversation.spoken[0][1] == bundled_fillers()["en"].waiting[0]


def test_fillers_are_used_in_rotation() -> None:
    conversation = Conversation()

    async def main() -> None:
        for _ in range(4):
            await conversation.wait(2)

    run_virtual(main())
    texts = [text for _, text in conversation.spoken]
    assert len(set(texts)) == 3
    assert texts[0] == texts[3]


def test_a_language_without_sentences_gets_the_english_ones() -> None:
    conversation, english = Conversation(), bundled_fillers()["en"]
    run_virtual(conversation.wait(8, "is"))
    assert conversation.spoken == [(1.5, english.waiting[0]), (6, english.still_waiting[0])]
    assert conversation.fillers.tool_failure("is") == english.failed[0]


def test_no_filler_follows_a_cancellation() -> None:
    conversation = Conversation()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await conversation.wait(8)
        await asyncio.sleep(20)

    run_virtual(main())
    assert conversation.spoken == []


@pytest.mark.parametrize("language", sorted({*LANGUAGES, *bundled_fillers()}))
@pytest.mark.parametrize(
    ("field", "method"),
    [("waiting", "first_filler"), ("still_waiting", "later_filler"), ("failed", "tool_failure")],
)
def test_no_language_repeats_a_sentence_directly(language: str, field: str, method: str) -> None:
    sentences = bundled_fillers()[language]
    choices = getattr(sentences, field)
    assert len(set(choices)) == len(choices) >= 2
    fillers = Fillers()
    texts = [getattr(fillers, method)(language) for _ in range(9)]
    assert all(a != b for a, b in pairwise(texts))


def test_sentences_can_be_configured() -> None:
    fillers = Fillers({"en": FillerSentences(("Hm.",), ("Hmm.",), ("Oh.",))})
    assert (fillers.first_filler("en"), fillers.later_filler("en"), fillers.tool_failure("en")) == (
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
