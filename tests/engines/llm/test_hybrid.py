"""Commands run without the model, everything else goes to it, and its absence is spoken."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from core.conversation.events import OutputTextDelta, PlayoutStarted, ResponseDone
from core.conversation.items import ImagePart
from core.conversation.usage import RateLimits, TokenUsage
from core.errors import (
    ConfigError,
    ContextLengthExceeded,
    EarshotError,
    EngineError,
    EngineTimeout,
    EngineUnreachable,
    OverloadedError,
)
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    AnswerFormat,
    CallDelta,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
)
from engines.llm import hybrid, intents
from engines.llm.hybrid import HybridLlm
from engines.registry import load
from pipeline.session.session import Session
from tests.engines.llm.intents.text_conversation import Talk
from tests.engines.llm.openai.completions_server import Server as Completions
from tests.engines.llm.openai.completions_server import (
    collect_reply,
    delta,
    open_client,
    reply_text,
    sends,
    sse,
    text,
)
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import of, run_session

pytestmark = pytest.mark.live

TOOLS = Talk().specs()
MODEL_ANSWER: list[TextDelta | ToolCall | TokenUsage] = [TextDelta("Paris."), TokenUsage(5, 2)]


class Model:
    """An `Llm` that gives a fixed answer and counts its requests."""

    name = "scripted"
    context_tokens: int | None = 512
    accepts_images = False

    def __init__(
        self,
        answer: Sequence[TextDelta | ToolCall | TokenUsage] = MODEL_ANSWER,
        failure: EarshotError | None = None,
        languages: tuple[str, ...] = (),
    ) -> None:
        self.languages = languages
        self.calls = 0
        self.closed = False
        self._answer, self._failure = answer, failure

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        self.calls += 1
        for one in self._answer:
            yield one
        if self._failure:
            raise self._failure

    async def aclose(self) -> None:
        self.closed = True


AWAY = "I cannot reach my language model right now."
BUSY = "I have too much to do right now. Please ask me again in a moment."


def hybrid_llm(model: Model) -> HybridLlm:
    return HybridLlm(intents.create(intents.Settings()), model)


def reply_to(
    engine: HybridLlm,
    *messages: Message,
    language: str = "en",
    tools: Sequence[ToolSpec] = TOOLS,
) -> list[TextDelta | ToolCall | TokenUsage]:
    async def scenario() -> list[TextDelta | ToolCall | TokenUsage]:
        reply = engine.reply(messages, tools, language=language)
        async with aclosing(reply) as deltas:
            return [
                delta async for delta in deltas if not isinstance(delta, CallDelta | RateLimits)
            ]

    return asyncio.run(scenario())


COMMAND = Message("user", "turn on the kitchen lights")
QUESTION = Message("user", "what is the capital of France")


def test_a_command_does_not_need_the_model() -> None:
    model = Model()
    (call,) = reply_to(hybrid_llm(model), COMMAND)
    assert isinstance(call, ToolCall)
    assert call.name == "HassTurnOn"
    assert model.calls == 0
    result = Message("tool", '{"areas": ["kitchen"]}', call_id=call.call_id)
    (said,) = reply_to(hybrid_llm(model), COMMAND, Message("assistant", tool_calls=(call,)), result)
    assert isinstance(said, TextDelta)
    assert model.calls == 0


def test_other_sentences_go_to_the_model() -> None:
    model = Model()
    assert reply_to(hybrid_llm(model), QUESTION) == MODEL_ANSWER
    assert model.calls == 1


def test_unsupported_requests_go_to_the_model_if_it_has_other_tools() -> None:
    model = Model()
    engine, question = hybrid_llm(model), Message("user", "what is the weather in rome")
    assert reply_to(engine, question) == [TextDelta("I can't tell the weather yet.")]
    more = [*TOOLS, ToolSpec("weather", "Tells the weather.", {"type": "object"})]
    assert reply_to(engine, question, tools=more) == MODEL_ANSWER
    (call,) = reply_to(engine, COMMAND, tools=more)
    assert isinstance(call, ToolCall)


def test_results_go_to_the_model_that_requested_them() -> None:
    """This holds even if the sentence has become a command, because a device of that name was
    added."""
    model = Model()
    call = ToolCall("call_1", "HassTurnOn", {"area": "kitchen"})
    calls = Message("assistant", tool_calls=(call,))
    done = Message("tool", "{}", call_id="call_1")
    assert reply_to(hybrid_llm(model), COMMAND, calls, done) == MODEL_ANSWER


def test_sentences_of_other_languages_go_to_the_model() -> None:
    model = Model()
    assert reply_to(hybrid_llm(model), Message("user", "hello"), language="xx") == MODEL_ANSWER


@pytest.mark.parametrize(
    ("failure", "code", "excuse"),
    [
        (EngineUnreachable("llm", "scripted", "no connection"), "engine_unreachable", AWAY),
        (EngineTimeout("llm", "scripted", "no first token"), "engine_timeout", AWAY),
        (
            OverloadedError("full", retry_after_s=1),
            "server_full",
            "I have too much to do right now. Please ask me again in a moment.",
        ),
        (EngineError("llm", "scripted", "refused"), "engine_failed", "Sorry, that did not work."),
    ],
)
def test_an_unreachable_model_is_announced_and_the_response_fails(
    failure: EarshotError, code: str, excuse: str
) -> None:
    engine = hybrid_llm(Model((), failure))
    failures: list[EarshotError] = []
    engine.on_failure = failures.append

    async def one_turn(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 4000))

    events = run_session(World(llm=engine), one_turn)  # type: ignore[arg-type]
    (done,) = of(ResponseDone, events)
    assert (done.status, done.error_code) == ("failed", code)
    assert "".join(event.delta for event in of(OutputTextDelta, events)) == excuse
    assert len(of(PlayoutStarted, events)) == 1
    assert failure in failures


@pytest.mark.parametrize(
    ("said", "failures"), [((), []), (MODEL_ANSWER, ["context_length_exceeded"])]
)
def test_a_prompt_that_may_be_shortened_is_not_yet_a_failure(
    said: Sequence[TextDelta | ToolCall | TokenUsage], failures: list[str]
) -> None:
    engine = hybrid_llm(Model(said, ContextLengthExceeded("llm", "scripted", "too long")))
    codes: list[str] = []
    engine.on_failure = lambda error: codes.append(error.code)
    with pytest.raises(ContextLengthExceeded):
        reply_to(engine, QUESTION)
    assert codes == failures


def test_a_model_that_fails_midway_gets_no_other_answer() -> None:
    failure = EngineError("llm", "scripted", "lost")
    with pytest.raises(EngineError, match="lost"):
        reply_to(hybrid_llm(Model([TextDelta("Par")], failure)), QUESTION)


def test_the_engine_has_the_properties_of_its_model() -> None:
    assert hybrid_llm(Model()).languages == ()
    assert {"en", "tlh"} <= set(hybrid_llm(Model(languages=("tlh",))).languages)
    engine = hybrid_llm(model := Model())
    assert engine.context_tokens == 512
    model.context_tokens = 1024
    reply_to(engine, QUESTION)
    assert engine.context_tokens == 1024
    asyncio.run(engine.aclose())
    assert model.closed


class ModelWithServer(Model):
    """A model that must be started."""

    is_running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.is_running, self.context_tokens = True, 2048
        try:
            yield
        finally:
            self.is_running = False


def test_the_engine_starts_and_stops_its_model() -> None:
    async def scenario(model: Model) -> tuple[bool, int | None]:
        engine = hybrid_llm(model)
        async with engine.running():
            return getattr(model, "is_running", False), engine.context_tokens

    served = ModelWithServer()
    assert asyncio.run(scenario(served)) == (True, 2048)
    assert not served.is_running
    assert asyncio.run(scenario(Model())) == (False, 512)


def test_the_engine_works_with_a_real_server() -> None:
    server = Completions(sends(sse(delta(role="assistant"), *text("Paris", "."))))

    async def scenario() -> str:
        async with open_client(server) as llm:
            engine = HybridLlm(intents.create(intents.Settings()), llm)
            await engine.warm("en", TOOLS)
            assert engine.context_tokens == 8192
            await collect_reply(engine, [COMMAND], TOOLS)
            return reply_text(await collect_reply(engine, [QUESTION], TOOLS))

    assert asyncio.run(scenario()) == "Paris."
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "model"),
        ({"model": {"engine": "hybrid"}}, "'hybrid' is not allowed"),
        ({"model": {"engine": "intents"}}, "'intents' is not allowed"),
        ({"model": {"engine": "openia"}}, "no engine 'openia'"),
        ({"model": {"engine": "openai", "options": {"base_url": "x"}}}, "not an http"),
        ({"model": {"engine": "openai", "optoins": {}}}, "optoins"),
    ],
)
def test_the_error_names_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("llm", "hybrid", options)


def test_the_models_key_is_not_in_a_repr() -> None:
    model = hybrid.ModelSettings("openai", {"api_key": "sk-1"})
    assert "sk-1" not in repr(hybrid.Settings(model))


PIECES = [
    (["turn on the", "kitchen lights"], {"area": "kitchen", "domain": "light"}),
    (["Turn on the.", "Kitchen lights."], {"area": "kitchen", "domain": "light"}),
    (["turn on", "the kitchen", "lights"], {"area": "kitchen", "domain": "light"}),
    (["blue elephants", "turn on the", "kitchen lights"], {"area": "kitchen", "domain": "light"}),
    (["what time is it", "turn on the kitchen lights"], {"area": "kitchen", "domain": "light"}),
    (["add milk to the", "shopping list"], {"item": "milk"}),
]


@pytest.mark.parametrize(("pieces", "slots"), PIECES)
def test_a_sentence_in_pieces_is_understood_as_one(
    pieces: list[str], slots: dict[str, Any]
) -> None:
    model = Model()
    (call,) = reply_to(hybrid_llm(model), *(Message("user", piece) for piece in pieces))
    assert isinstance(call, ToolCall)
    assert call.arguments == slots
    assert model.calls == 0


def test_an_answer_interrupted_at_once_does_not_split_a_sentence() -> None:
    said = (
        Message("user", "set a timer"),
        Message("assistant", "I did"),
        Message("user", "for five seconds"),
    )
    (call,) = reply_to(hybrid_llm(model := Model()), *said)
    assert isinstance(call, ToolCall)
    assert call.arguments == {"seconds": 5}
    assert model.calls == 0


def test_an_answer_ends_the_pieces_of_a_sentence() -> None:
    model = Model()
    messages = (Message("user", "turn on the"), Message("assistant", "What?"))
    assert reply_to(hybrid_llm(model), *messages, Message("user", "kitchen lights")) == MODEL_ANSWER
    called = ToolCall("intent_1", "HassTurnOn", {"area": "kitchen", "domain": "light"})
    done = (
        COMMAND,
        Message("assistant", tool_calls=(called,)),
        Message("tool", "{}", call_id="intent_1"),
    )
    assert (
        reply_to(hybrid_llm(model), *done, Message("user", "thanks for nothing at all"))
        == MODEL_ANSWER
    )


def test_two_separate_commands_are_not_joined() -> None:
    """The name of a timer could contain the second command."""
    said = ("start a five minute timer named pizza", "turn off the kitchen lights")
    (call,) = reply_to(hybrid_llm(Model()), *(Message("user", one) for one in said))
    assert isinstance(call, ToolCall)
    assert call.name == "HassTurnOff"


class ConcurrencyLimitedModel(Model):
    max_concurrency = 3


def test_the_engine_has_the_slots_of_its_model() -> None:
    assert [
        hybrid_llm(model).max_concurrency for model in (Model(), ConcurrencyLimitedModel())
    ] == [None, 3]


def test_images_go_to_a_model_with_vision() -> None:
    model = Model()
    engine = HybridLlm(intents.create(intents.Settings()), model)
    accepts_images = [engine.accepts_images]
    model.accepts_images = True
    assert [*accepts_images, engine.accepts_images] == [False, True]
    image = ImagePart("data:image/png;base64,AAAA")
    assert reply_to(engine, Message("user", "what time is it", images=(image,))) == MODEL_ANSWER
    assert model.calls == 1


def test_only_the_model_answers_in_a_form() -> None:
    model = Model()
    options = LlmOptions(answer_format=AnswerFormat())
    asked = [Message("user", "turn on the kitchen light")]
    said = asyncio.run(collect_reply(hybrid_llm(model), asked, TOOLS, options))
    assert (said, model.calls) == (MODEL_ANSWER, 1)
    assert not hybrid_llm(model).holds_format
