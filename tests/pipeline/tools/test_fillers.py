"""What is said while a tool is slow."""

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
    """Takes down what is said, and when."""

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
        """An answer with one round of tools."""
        with self.silence(language) as silence:
            silence.begin()
            await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    ("seconds", "times"),
    [(0, []), (1.4, []), (3, [1.5]), (8, [1.5, 6]), (17, [1.5, 6, 16]), (60, [1.5, 6, 16])],
)
def test_slow_work_is_spoken_over_fast_work_is_not(seconds: float, times: list[float]) -> None:
    conversation = Conversation()

    async def main() -> None:
        await conversation.wait(seconds)
        await asyncio.sleep(20)

    run_virtual(main())
    assert conversation.times == times


@pytest.mark.parametrize("seconds", [1.4, 1.6])
def test_rounds_of_tools_are_one_silence(seconds: float) -> None:
    conversation = Conversation()

    async def main() -> None:
        with conversation.silence() as silence:
            for _ in range(5):
                silence.begin()
                await asyncio.sleep(seconds)

    run_virtual(main())
    assert conversation.times == [1.5, 6]
    assert len({text for _, text in conversation.said}) == 2


def test_what_the_model_writes_between_its_tools_is_no_silence() -> None:
    conversation, preamble = Conversation(), "Let me look into the oven first. "

    async def main() -> None:
        with conversation.silence() as silence:
            silence.begin()
            await asyncio.sleep(1)
            silence.on_text(preamble)
            await asyncio.sleep(10)  # it writes slowly, which nobody interrupts
            silence.on_text(preamble)
            silence.begin()
            silence.on_text(" ")
            await asyncio.sleep(8)

    run_virtual(main())
    quiet_from = 11 + len(preamble) / SPOKEN_CHARS_PER_S
    assert conversation.times == pytest.approx([quiet_from + 1.5, quiet_from + 6])


def test_what_could_not_be_said_is_said_when_it_can_be() -> None:
    conversation = Conversation()
    conversation.deaf_until_s = 3.0
    run_virtual(conversation.wait(8))
    assert conversation.times == [3.0, 7.5]
    assert conversation.said[0][1] == bundled_fillers()["en"].waiting[0]


def test_sentences_take_turns() -> None:
    conversation = Conversation()

    async def main() -> None:
        for _ in range(4):
            await conversation.wait(2)

    run_virtual(main())
    said = [text for _, text in conversation.said]
    assert len(set(said)) == 3
    assert said[0] == said[3]


def test_a_language_without_sentences_is_not_met_with_silence() -> None:
    conversation, english = Conversation(), bundled_fillers()["en"]
    run_virtual(conversation.wait(8, "is"))
    assert conversation.said == [(1.5, english.waiting[0]), (6, english.still_waiting[0])]
    assert conversation.fillers.failed("is") == english.failed[0]


def test_nothing_is_said_once_the_user_has_interrupted_or_the_work_has_failed() -> None:
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
def test_every_language_has_enough_sentences_to_say_none_twice_in_a_row(
    language: str, kind: str
) -> None:
    sentences = bundled_fillers()[language]
    choices = getattr(sentences, kind)
    assert len(set(choices)) == len(choices) >= 2
    fillers = Fillers()
    said = [getattr(fillers, kind)(language) for _ in range(9)]
    assert all(a != b for a, b in pairwise(said))


def test_sentences_can_be_ones_own() -> None:
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
def test_a_model_that_cannot_be_had_is_told_of_in_every_language(
    error: EarshotError, language: str
) -> None:
    sentences = bundled_fillers().get(language, bundled_fillers()["en"])
    own = sentences.busy if isinstance(error, OverloadedError) else sentences.away
    assert Fillers().apology(error, language) == (own or sentences.failed)[0]
