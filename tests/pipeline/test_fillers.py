"""What is said while a tool is slow."""

import asyncio
from itertools import pairwise

import pytest

from pipeline.fillers import Fillers, Sentences, bundled, with_filler
from tests.loop import run_virtual

LANGUAGES = ("en", "de", "fr", "es")


class Conversation:
    """Takes down what is said, and when."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []
        self.fillers = Fillers()

    def say(self, text: str) -> None:
        self.said.append((asyncio.get_running_loop().time(), text))

    async def wait(self, seconds: float, language: str = "en") -> str:
        work = asyncio.sleep(seconds, "done")
        return await with_filler(work, self.say, self.fillers, language)


@pytest.mark.parametrize(
    ("seconds", "times"), [(0, []), (1.4, []), (3, [1.5]), (8, [1.5, 6]), (60, [1.5, 6])]
)
def test_slow_work_is_spoken_over_fast_work_is_not(seconds: float, times: list[float]) -> None:
    conversation = Conversation()

    async def main() -> None:
        assert await conversation.wait(seconds) == "done"
        await asyncio.sleep(20)

    run_virtual(main())
    assert [at for at, _ in conversation.said] == times


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
    conversation, english = Conversation(), bundled()["en"]
    run_virtual(conversation.wait(8, "is"))
    assert conversation.said == [(1.5, english.waiting[0]), (6, english.still_waiting[0])]
    assert conversation.fillers.failed("is") == english.failed[0]


def test_nothing_is_said_once_the_user_has_interrupted_or_the_work_has_failed() -> None:
    conversation = Conversation()

    async def failing() -> None:
        raise KeyError("oven")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await conversation.wait(8)
        with pytest.raises(KeyError):
            await with_filler(failing(), conversation.say, conversation.fillers, "en")
        await asyncio.sleep(20)

    run_virtual(main())
    assert conversation.said == []


@pytest.mark.parametrize("language", sorted({*LANGUAGES, *bundled()}))
@pytest.mark.parametrize("kind", ["waiting", "still_waiting", "failed"])
def test_every_language_has_enough_sentences_to_say_none_twice_in_a_row(
    language: str, kind: str
) -> None:
    sentences = bundled()[language]
    choices = getattr(sentences, kind)
    assert len(set(choices)) == len(choices) >= 2
    fillers = Fillers()
    said = [getattr(fillers, kind)(language) for _ in range(9)]
    assert all(a != b for a, b in pairwise(said))


def test_sentences_can_be_ones_own() -> None:
    mine = Fillers({"en": Sentences(("Hm.",), ("Hmm.",), ("Oh.",))})
    assert (mine.waiting("en"), mine.still_waiting("en"), mine.failed("en")) == (
        "Hm.",
        "Hmm.",
        "Oh.",
    )
