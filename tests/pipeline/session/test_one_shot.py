"""One-shot questions and answers without a session, in virtual time."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Never

import pytest

from core.conversation.items import FunctionCallItem, FunctionOutputItem, MessageItem
from core.errors import Conflict, EngineError, NotFound, OverloadedError
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.shared.settings import ConversationProfile, SessionSettings
from pipeline.speech.language.language_id import TextLanguageDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import EchoLlm, World
from tests.pipeline.scripted import AsksTool, Says, SlowTool


class Usual(TextLanguageDetector):
    """A detector that takes texts with `Licht` for German."""

    async def detect(self, text: str, usual: str, known: object = ()) -> str:
        return "de" if "Licht" in text else usual


def exchanges(world: World, **more: int) -> OneShotResponses:
    return OneShotResponses(
        world.services(),
        world.conversations,
        Usual(),
        default_settings=lambda: SessionSettings(instructions="Be brief.", max_output_tokens=50),
        **more,
    )


async def ask(to: OneShotResponses, question: OneShotRequest) -> str:
    async with to.open(question) as exchange:
        return await exchange.text()


def run(
    scene: Callable[[World, OneShotResponses], Awaitable[None]],
    world: World | None = None,
    **more: int,
) -> World:
    world = world or World()

    async def main() -> None:
        asked = exchanges(world, **more)
        await scene(world, asked)
        assert asked.count == 0

    run_virtual(main())
    return world


def test_questions_without_a_conversation_are_independent() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        assert await ask(asked, OneShotRequest("one")) == "you said one."
        assert await ask(asked, OneShotRequest("two")) == "you said two."
        assert [m.text for m in world.llm.asked[1]] == ["Be brief.", "two"]

    run(scene)


def test_questions_of_one_conversation_share_its_history() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        await ask(asked, OneShotRequest("one", "kitchen"))
        await ask(asked, OneShotRequest("two", "kitchen"))
        texts = [m.text.strip() for m in world.llm.asked[1]]
        assert texts == ["Be brief.", "one", "you said one.", "two"]
        items = world.conversations.get("kitchen").history.items
        assert [i.role for i in items if isinstance(i, MessageItem)] == ["user", "assistant"] * 2
        assert {i.status for i in items if isinstance(i, MessageItem)} == {"completed"}

    run(scene)


def test_tool_calls_and_results_stay_in_the_history() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        assert await ask(asked, OneShotRequest("four", "kitchen")) == "you said it is 4."
        kinds = [type(item) for item in world.conversations.get("kitchen").history.items]
        assert kinds == [MessageItem, FunctionCallItem, FunctionOutputItem, MessageItem]

    run(scene)


def test_the_language_comes_from_the_request_the_conversation_or_the_text() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        for question in (
            OneShotRequest("one"),
            OneShotRequest("Licht"),
            OneShotRequest("one", language="de"),
            OneShotRequest("Licht", "kitchen"),
            OneShotRequest("one", "kitchen"),
        ):
            await ask(asked, question)
        assert world.llm.languages_asked == ["en", "de", "de", "de", "de"]
        world.conversations.get("hall").profile = ConversationProfile.of(
            SessionSettings(language="de", instructions="Be long.", voice="tief", speed=1.5)
        )
        async with asked.open(OneShotRequest("one", "hall")) as exchange:
            plan = exchange.plan
            assert (plan.language, plan.instructions) == ("de", "Be long.")
            assert (plan.voice, plan.speed) == ("tief", 1.5)

    run(scene)


def test_options_of_the_request_override_the_usual_ones() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        async with asked.open(OneShotRequest("one")) as exchange:
            assert exchange.plan.options.max_output_tokens == 50
            assert exchange.plan.options.temperature is None
        wished = OneShotRequest("one", temperature=0.0, max_output_tokens=7)
        async with asked.open(wished) as exchange:
            assert exchange.plan.options.temperature == 0.0
            assert exchange.plan.options.max_output_tokens == 7

    run(scene)


def test_a_client_that_leaves_cancels_the_answer_and_the_sent_part_stays() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        question = OneShotRequest("one two three", "kitchen")
        async with asked.open(question) as exchange, aclosing(exchange.texts()) as texts:
            assert [await anext(texts), await anext(texts)] == ["you ", "said "]
        assert world.llm.closed_early == 1

    world = run(scene)
    _, answer = world.conversations.get("kitchen").history.items
    assert isinstance(answer, MessageItem)
    assert (answer.text, answer.status) == ("you said ", "incomplete")


def test_a_failed_model_fails_one_question_only() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        world.llm.fails = True
        with pytest.raises(EngineError):
            await ask(asked, OneShotRequest("one", "kitchen"))
        world.llm.fails = False
        assert await ask(asked, OneShotRequest("two", "kitchen")) == "you said two."

    run(scene)


def test_a_conversation_answers_one_question_at_a_time() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        async with asked.open(OneShotRequest("one", "kitchen")):
            with pytest.raises(Conflict) as refused:
                await ask(asked, OneShotRequest("two", "kitchen"))
            assert refused.value.code == "conversation_already_has_active_response"
            assert await ask(asked, OneShotRequest("two", "hall")) == "you said two."

    run(scene)


def test_the_number_of_parallel_questions_is_limited() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        async with asked.open(OneShotRequest("one")), asked.open(OneShotRequest("two")):
            with pytest.raises(OverloadedError):
                await ask(asked, OneShotRequest("three"))
        assert await ask(asked, OneShotRequest("three")) == "you said three."

    run(scene, max_parallel=2)


def test_an_unknown_model_is_not_found() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        with pytest.raises(NotFound):
            await ask(asked, OneShotRequest("one", model="parrot"))

    run(scene)


def slow(takes_s: float = 8.0, llm: EchoLlm | None = None) -> World:
    return World(llm=llm or AsksTool(), providers=[SlowTool(takes_s)])


def test_a_spoken_answer_has_fillers_during_a_slow_tool() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        question = OneShotRequest("one", "kitchen", is_spoken=True)
        async with asked.open(question) as exchange:
            texts = [text async for text in exchange.texts()]
        between = ["One moment, please. ", "It is taking a little longer. "]
        assert texts == [*between, "It is done."]
        assert exchange.answer == "It is done."

    *_, answer = run(scene, slow()).conversations.get("kitchen").history.items
    assert isinstance(answer, MessageItem)
    assert (answer.text, answer.status) == ("It is done.", "completed")


def test_two_slow_questions_begin_with_different_fillers() -> None:
    async def begun(asked: OneShotResponses) -> str:
        async with asked.open(OneShotRequest("one", is_spoken=True)) as exchange:
            texts = [text async for text in exchange.texts()]
        return texts[0]

    async def scene(_: World, asked: OneShotResponses) -> None:
        assert await begun(asked) == "One moment, please. "
        assert await begun(asked) == "Let me check. "

    run(scene, slow(2.0))


def test_a_written_or_whole_answer_has_no_fillers() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        assert await ask(asked, OneShotRequest("one", is_spoken=True)) == "It is done."
        async with asked.open(OneShotRequest("one")) as exchange:
            assert [text async for text in exchange.texts()] == ["It is done."]

    run(scene, slow())


def test_an_empty_answer_is_replaced_only_if_it_is_spoken() -> None:
    async def scene(_: World, asked: OneShotResponses) -> None:
        assert await ask(asked, OneShotRequest("one")) == ""
        assert (
            await ask(asked, OneShotRequest("one", is_spoken=True)) == "I have no answer to that."
        )

    run(scene, World(llm=Says("")))


def test_a_spoken_answer_is_cancelled_when_its_client_leaves_and_raises_errors() -> None:
    async def scene(world: World, asked: OneShotResponses) -> None:
        question = OneShotRequest("one two three", is_spoken=True)
        async with asked.open(question) as exchange, aclosing(exchange.texts()) as texts:
            assert await anext(texts) == "you "
        assert world.llm.closed_early == 1
        world.llm.fails = True
        with pytest.raises(EngineError):
            async with asked.open(replace(question, text="two")) as exchange:
                [_ async for _ in exchange.texts()]

    run(scene)


@pytest.mark.parametrize("is_spoken", [False, True])
def test_only_unexpected_errors_of_a_model_become_engine_errors(
    is_spoken: bool,
) -> None:
    class Buggy(EchoLlm):
        def reply(self, *_: object, **__: object) -> Never:
            raise ZeroDivisionError

    async def scene(world: World, asked: OneShotResponses) -> None:
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            async with asked.open(OneShotRequest("one", is_spoken=is_spoken)) as exchange:
                [_ async for _ in exchange.texts()]
        world.llm = EchoLlm()
        for wrong in (ConnectionError("gone"), ExceptionGroup("two", [ValueError(), KeyError()])):
            with pytest.raises(type(wrong)) as raised:
                async with asked.open(OneShotRequest("one", is_spoken=is_spoken)):
                    raise wrong
            assert raised.value is wrong

    run(scene, World(llm=Buggy()))
