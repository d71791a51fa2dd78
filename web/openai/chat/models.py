"""Finds the model that a chat request names, and lets it answer.

`assistant` is this server's own assistant: the conversation with its tools and language rules.
Every other name is the language model itself, without them. A model with a server of its own gets
the request as the client wrote it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from core.access.named_key import CALLER_KEY
from core.conversation.usage import TokenUsage
from core.errors import ContextLengthExceeded, Forbidden, OverloadedError, RequestError
from engines.base import (
    CompletionServerLlm,
    FormatLlm,
    LayeredLlm,
    Llm,
    LlmOptions,
    TextDelta,
    ToolCall,
    VisionLlm,
)
from engines.llm.openai.pass_through import deltas_of_events
from pipeline.response.planner import CommandModel
from pipeline.services import SessionServices
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.shared.settings import DEFAULT
from serving.scheduling.llm_slots import LlmSlots
from web.openai.chat.fields import (
    ChatFields,
    answer_format_of,
    check_answer_format,
    choice_of,
    items_of,
    last_question,
    private_texts,
    prompt_of,
    tools_of,
)

ASSISTANT = "assistant"
"Name of the model that is this server's own assistant."

QUEUE_WAIT_S = 20.0
"""Longest wait of a request for its place at the language model. Most clients give up after 30 to
60 s, and the answer needs time, too."""
RETRY_AFTER_S = 2
"Seconds that a refused caller is asked to wait: an answer is written in that time."

ChatDelta = str | ToolCall | TokenUsage
"A piece of an answer: text, a call of a client's tool, or the number of tokens at the end."

SERVER_ONLY = (
    "n",
    "seed",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)
"Fields that only models with a server of their own understand."
_WITHOUT_EFFECT: Mapping[str, object] = {"n": 1, "presence_penalty": 0, "frequency_penalty": 0}
"Values of such fields that ask for nothing."


@dataclass(slots=True)
class LatencyMarks:
    """Moments of one request, for the headers of its answer."""

    began_s: float
    admitted_s: float | None = None
    "When it got its place at the model."
    first_s: float | None = None
    "When the first piece of the answer came."

    @classmethod
    def start(cls) -> "LatencyMarks":
        """Returns the marks of a request that begins now."""
        return cls(perf_counter())

    def admitted(self) -> None:
        """Notes that the request got its place."""
        self.admitted_s = self.admitted_s or perf_counter()

    def first(self) -> None:
        """Notes that the first piece came."""
        self.first_s = self.first_s or perf_counter()

    def headers(self, *, is_whole: bool = False) -> dict[str, str]:
        """Returns the headers, in ms since the request was read. `is_whole`: the answer is over."""
        marks = {"queue": self.admitted_s, "first-token": self.first_s}
        if is_whole:
            marks["total"] = perf_counter()
        return {
            f"x-earshot-{name}-ms": f"{1000 * (mark - self.began_s):.1f}"
            for name, mark in marks.items()
            if mark is not None
        }


@dataclass(frozen=True, slots=True)
class ChatModel:
    """The model of one request. `llm`: the language model as sessions use it; None for the
    assistant. `raw`: the same without the layers in front of it, such as sentence templates."""

    name: str
    llm: Llm | None = None
    raw: Llm | None = None
    server: CompletionServerLlm | None = None
    "The model, if it has a server that requests are passed on to."


class ChatModels:
    """The assistant and the language models, for requests of chat clients."""

    def __init__(self, services: SessionServices, assistant: OneShotResponses) -> None:
        self._services, self._assistant = services, assistant

    def find(self, name: str) -> ChatModel:
        """Returns the model with this name. Where only templates answer, every name means the
        assistant.

        Raises NotFound model_not_found; Forbidden if the caller's key has not the scope `models`.
        """
        if name == ASSISTANT:
            return ChatModel(name)
        llm = self._services.engines.language_model(name)
        if isinstance(llm, CommandModel):
            return ChatModel(ASSISTANT)
        key = CALLER_KEY.get()
        if key is not None and "models" not in key.scopes:
            raise Forbidden(
                f"the key {key.name!r} does not have the scope 'models', which the model"
                f" {name[:64]!r} needs; with the scope 'talk' the model is {ASSISTANT!r}",
                code="missing_scope",
            )
        raw = llm.raw_model if isinstance(llm, LayeredLlm) else llm
        # Checked once: `isinstance` with a Protocol is slow, and a request asks for it four times.
        return ChatModel(name, llm, raw, raw if isinstance(raw, CompletionServerLlm) else None)

    def language_model(self, model: ChatModel) -> Llm:
        """Returns the language model that answers, that of the assistant, too."""
        return model.raw or self._services.engines.language_model(DEFAULT)

    def slots(self, model: ChatModel) -> LlmSlots:
        """Returns the places for requests to a model; spoken turns take them, too."""
        llm = model.llm or self._services.engines.language_model(DEFAULT)
        return self._services.drafts.slots(llm)

    def check(self, model: ChatModel, fields: ChatFields) -> None:
        """Checks that the model can do what is asked. Raises RequestError unsupported_parameter,
        invalid_value for a schema that is none, and invalid_image for a model that takes none."""
        llm = self.language_model(model)
        has_images = any(message.images for message in fields.messages)
        if has_images and not (isinstance(llm, VisionLlm) and llm.accepts_images):
            raise RequestError(
                f"Invalid value for 'messages': the model {model.name[:64]!r} takes no images.",
                code="invalid_image",
                param="messages",
            )
        if model.server is not None:
            return
        for name in SERVER_ONLY:
            if getattr(fields, name) not in (None, False, {}, _WITHOUT_EFFECT.get(name)):
                raise unsupported(name, model.name)
        form = answer_format_of(fields)
        if form is None:
            return
        if not (isinstance(llm, FormatLlm) and llm.holds_format):
            raise unsupported("response_format", model.name)
        check_answer_format(form)

    async def forward(
        self,
        model: ChatModel,
        path: str,
        body: Mapping[str, object],
        private: list[str],
        marks: LatencyMarks,
    ) -> AsyncGenerator[str, None]:
        """Passes a request on to the model's server, and yields what it sends. Raises as
        `CompletionServerLlm.forward`, and OverloadedError too_many_requests."""
        assert model.server is not None
        assert model.llm is not None
        async with self._place(model.llm, marks):
            with plugin_errors("llm", model.name, self._services.metrics):
                async with aclosing(model.server.forward(path, body, private)) as texts:
                    async for text in texts:
                        marks.first()
                        yield text

    def deltas(
        self, model: ChatModel, fields: ChatFields, marks: LatencyMarks
    ) -> AsyncGenerator[ChatDelta, None]:
        """Yields the answer of a model without a server. Raises RequestError
        context_length_exceeded, EngineError, OverloadedError."""
        if model.llm is None or model.raw is None:
            deltas = self._ask_assistant(fields, marks)
        else:
            deltas = self._ask_model(model.name, model.llm, model.raw, fields, marks)
        return _with_length_refusals(deltas)

    async def all_deltas(
        self,
        model: ChatModel,
        fields: ChatFields,
        body: Mapping[str, object],
        marks: LatencyMarks,
    ) -> AsyncGenerator[ChatDelta, None]:
        """Yields the answer of any model, in our own form. `body`: the request for a model's
        server, streamed. Raises as `deltas` and `forward`."""
        if model.server is None:
            deltas = self.deltas(model, fields, marks)
        else:
            texts = self.forward(model, "/chat/completions", body, private_texts(fields), marks)
            deltas = deltas_of_events(model.name, texts)
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

    async def _ask_assistant(
        self, fields: ChatFields, marks: LatencyMarks
    ) -> AsyncGenerator[ChatDelta, None]:
        effort = fields.reasoning_effort
        question = OneShotRequest(
            last_question(fields),
            items=items_of(fields.messages),
            temperature=fields.temperature,
            top_p=fields.top_p,
            max_output_tokens=fields.limit_tokens,
            client_tools=tools_of(fields),
            tool_choice=choice_of(fields),
            parallel_tool_calls=fields.parallel_tool_calls,
            reasoning_effort=None if effort == "none" else effort,
            answer_format=answer_format_of(fields),
        )
        async with self._assistant.open(question) as response:
            marks.admitted()
            async with aclosing(response.deltas()) as deltas:
                async for delta in deltas:
                    if isinstance(delta, str | ToolCall | TokenUsage):
                        marks.first()
                        yield delta

    async def _ask_model(
        self, name: str, llm: Llm, raw: Llm, fields: ChatFields, marks: LatencyMarks
    ) -> AsyncGenerator[ChatDelta, None]:
        choice, effort = choice_of(fields), fields.reasoning_effort
        tools = () if choice == "none" else tools_of(fields)
        if not isinstance(choice, str):
            tools = tuple(tool for tool in tools if tool.name == getattr(choice, "name", ""))
        options = LlmOptions(
            fields.temperature,
            fields.limit_tokens,
            must_call=choice not in ("auto", "none"),
            top_p=fields.top_p,
            parallel_tool_calls=fields.parallel_tool_calls,
            reasoning_effort=effort,
            answer_format=answer_format_of(fields),
        )
        language = self._services.engines.default_language
        async with self._place(llm, marks):
            with plugin_errors("llm", name, self._services.metrics):
                reply = raw.reply(
                    prompt_of(fields.messages), tools, language=language, options=options
                )
                async with aclosing(reply) as deltas:
                    async for delta in deltas:
                        match delta:
                            case TextDelta(text=text):
                                marks.first()
                                yield text
                            case ToolCall() | TokenUsage():
                                marks.first()
                                yield delta
                            case _:
                                pass

    @asynccontextmanager
    async def _place(self, llm: Llm, marks: LatencyMarks) -> AsyncIterator[None]:
        """Holds a slot of the language model, behind spoken turns. Raises OverloadedError
        too_many_requests after QUEUE_WAIT_S, and when a spoken turn needs the slot."""
        slots, loop = self._services.drafts.slots(llm), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(QUEUE_WAIT_S) as deadline:
                async with slots.take_behind(lambda: deadline.reschedule(loop.time())):
                    deadline.reschedule(None)
                    marks.admitted()
                    yield
        except TimeoutError:
            reason = (
                "a spoken turn needs the model"
                if marks.admitted_s
                else f"the model had no place for {QUEUE_WAIT_S:g} s"
            )
            raise OverloadedError(
                f"{reason}; try again later", retry_after_s=RETRY_AFTER_S, code="too_many_requests"
            ) from None


async def _with_length_refusals(
    deltas: AsyncGenerator[ChatDelta, None],
) -> AsyncGenerator[ChatDelta, None]:
    """Yields the deltas. A conversation that is too long is the request's fault here: unlike a
    session, its client can send less."""
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta
    except ContextLengthExceeded as exc:
        raise RequestError(exc.detail, code=exc.code, param="messages") from None


def unsupported(param: str, model: str) -> RequestError:
    """Returns the error for a field that the model does not understand."""
    return RequestError(
        f"The model {model[:64]!r} does not support {param!r} here. Leave it out, or use a language"
        " model that runs in a model server (engine openai, llama_cpp or vllm).",
        code="unsupported_parameter",
        param=param,
    )
