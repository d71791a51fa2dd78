"""Language model on an OpenAI-compatible server."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from core.conversation.usage import RateLimits, TokenUsage
from core.errors import ContextLengthExceeded, EngineError, RemoteProtocolError
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
from engines.llm.chat_messages import chat_messages, chat_tools
from engines.llm.openai.chunks import ChatCompletionChunk, usage_of
from engines.llm.openai.completion_stream import ChatCompletionStream
from engines.llm.openai.context_length import REFUSAL_STATUSES, is_about_length, is_length_refusal
from engines.llm.openai.pass_through import ForwardedEvents, forward_error
from engines.llm.openai.server_info import (
    LLAMA_CPP_OWNER,
    ServerInfo,
    listed_models,
    possible_names,
    probe_server,
    with_owner,
)
from engines.llm.openai.server_quirks import ServerQuirks
from engines.llm.openai.settings import Settings
from engines.llm.openai.tool_calls import ToolCallAssembler
from engines.llm.reasoning_filter import ReasoningFilter
from engines.runtime.openai_http.client import OpenAiHttpClient, WholeBodyReader
from engines.runtime.openai_http.errors import OpenAiHttpError, sanitized_quote

logger = logging.getLogger(__name__)

MAX_MODEL_NAMES = 12
"Most model names in an error message; hosted services have hundreds of models."
THINKING_FIELDS = ("chat_template_kwargs", "reasoning_effort", "reasoning", "think", "thinking")
"Fields of `extra_body` with which the operator decides whether the model thinks."
CONTEXT_PER_ANSWER = 4
"Size of the context divided by the longest answer. The other three quarters are for the prompt."


class OpenAiLlm:
    """An `Llm` over HTTP. It connects on first use; call `aclose` at the end."""

    def __init__(self, settings: Settings, name: str = "openai") -> None:
        """Raises ConfigError for a bad address or key. name: name of the engine in errors."""
        self.name = name
        self.languages = settings.languages
        self.accepts_images = settings.images
        self.holds_format = True
        "Its server holds the grammar. One that cannot refuses the request."
        self.context_tokens: int | None = settings.context_tokens
        self.max_concurrency: int | None = settings.max_requests
        self._settings = settings
        self._client = OpenAiHttpClient(
            "llm",
            name,
            base_url=settings.base_url,
            api_key=settings.api_key,
            api_key_file=settings.api_key_file,
            connect_timeout_s=settings.connect_timeout_s,
        )
        self._server: ServerInfo | None = None
        self._quirks = ServerQuirks()

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Asks the server for its model. Only logs an error: the next answer asks again."""
        try:
            await self._server_info()
        except EngineError as exc:
            logger.warning("%s", exc)

    async def probe(self) -> str:
        """Returns a description of the model and its server, for the operator.

        Raises EngineError if the server cannot be reached, or lists models without this one.
        """
        server = await self._server_info()
        names = await listed_models(self._client)
        is_listed = not names.isdisjoint(possible_names(server.model))
        accepts_any_name = server.owner == LLAMA_CPP_OWNER and len(names) == 1
        if names and not is_listed and not accepts_any_name:
            listed = ", ".join(sorted(names)[:MAX_MODEL_NAMES])
            raise self._error(
                f"it lists no model {server.model!r}; it has: {listed}. Set model to one of these,"
                " or load it there (Ollama: `ollama pull`)"
            )
        return f"{server.model} at {self._client.url} ({server.context_tokens} tokens)"

    async def aclose(self) -> None:
        """Closes idle connections."""
        await self._client.aclose()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Streams the answer (see `Llm.reply`).

        Complete tool calls come after the text. A request is not repeated after its answer has
        begun.
        """
        try:
            body = self._body(await self._server_for(options), messages, tools, options)
            async with aclosing(self._answer(body, messages)) as deltas:
                async for delta in deltas:
                    yield delta
        except OpenAiHttpError as exc:
            if exc.status == 404:
                self._server = None  # another model may be served by now
            texts = [message.text for message in messages]
            if is_length_refusal(exc):
                raise ContextLengthExceeded("llm", self.name, exc.public_detail(texts)) from None
            if options.answer_format is not None and exc.status in REFUSAL_STATUSES:
                # the schema comes from the client, and the server's words say what is wrong with it
                raise forward_error(exc, texts) from None
            raise exc.public_error(texts) from None

    async def forward(
        self, path: str, body: Mapping[str, object], private_texts: Sequence[str]
    ) -> AsyncGenerator[str, None]:
        """Passes a request on (see `CompletionServerLlm.forward`).

        The settings for spoken answers, such as `max_output_tokens`, are not applied.
        """
        server, settings = await self._server_info(), self._settings
        is_streamed = bool(body.get("stream"))
        texts = self._client.stream(
            path,
            {**body, "model": server.model},
            ForwardedEvents if is_streamed else WholeBodyReader,
            first_item_name="first token" if is_streamed else "answer",
            first_timeout_s=settings.first_token_timeout_s
            if is_streamed
            else settings.answer_timeout_s,
            next_timeout_s=settings.token_timeout_s,
        )
        try:
            async with aclosing(texts):
                async for text in texts:
                    yield text
        except OpenAiHttpError as exc:
            if exc.status == 404:
                self._server = None  # another model may be served by now
            raise forward_error(exc, private_texts) from None

    async def _server_info(self) -> ServerInfo:
        if self._server is not None:
            return self._server
        found = await probe_server(self._client, self._settings, self.name)
        self.context_tokens = found.context_tokens
        self._server = found if found.is_complete else None
        return found

    async def _server_for(self, options: LlmOptions) -> ServerInfo:
        """Returns the server's properties, with the model's owner if a field depends on it."""
        server = await self._server_info()
        needs_owner = options.repetition_penalty is not None or self._forbids_thinking(options)
        if server.is_owner_known or not needs_owner:
            return server
        self._server = await with_owner(self._client, server)
        return self._server

    def _forbids_thinking(self, options: LlmOptions) -> bool:
        """Returns True if the request asks the model not to think.

        False if the settings or the options ask for thoughts, if `extra_body` decides, or if the
        chat template opens a thought in any case (`starts_thinking`).
        """
        settings = self._settings
        has_own_field = any(field in settings.extra_body for field in THINKING_FIELDS)
        wants_thoughts = (
            settings.thinking or settings.starts_thinking or options.reasoning_effort is not None
        )
        return not (has_own_field or wants_thoughts)

    async def _answer(
        self, body: Mapping[str, object], messages: Sequence[Message]
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        reasoning, calls = ReasoningFilter(self._settings.starts_thinking), ToolCallAssembler()
        usage: TokenUsage | None = None
        try:
            async with aclosing(self._chunks(body)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, RateLimits):
                        yield chunk
                        continue
                    if chunk.error_message:
                        raise self._stream_error(chunk.error_message, messages)
                    usage = usage_of(chunk) or usage
                    for choice in chunk.choices or ():
                        for delta in calls.push(choice.addition.tool_calls or ()):
                            yield delta
                        if text := reasoning.push(choice.addition.text):
                            yield TextDelta(text)
            if text := reasoning.end():
                yield TextDelta(text)
            for call in calls.calls():
                yield call
        except RemoteProtocolError as exc:
            raise self._error(f"sent {exc}") from exc
        if usage is not None:
            yield usage

    async def _chunks(
        self, body: Mapping[str, object]
    ) -> AsyncGenerator[ChatCompletionChunk | RateLimits, None]:
        """Streams the events of an answer.

        A refused request is sent again without the fields that the server may not know, until it
        succeeds or no such field is left.
        """
        quirks = saved = self._quirks
        first_refusal: OpenAiHttpError | None = None
        while True:
            try:
                async with aclosing(self._stream(quirks.adapt(body))) as chunks:
                    async for chunk in chunks:
                        if quirks is not saved:  # merge: other requests may have changed them
                            self._quirks, saved = self._quirks.merge(quirks), quirks
                        yield chunk
                return
            except OpenAiHttpError as exc:
                if is_length_refusal(exc):
                    raise
                first_refusal = first_refusal or exc
                next_quirks = (
                    quirks.after_refusal(exc, body) if exc.status in REFUSAL_STATUSES else None
                )
            if next_quirks is None:
                raise first_refusal from None  # later ones may be about our changes
            quirks = next_quirks

    def _stream(
        self, body: Mapping[str, object]
    ) -> AsyncGenerator[ChatCompletionChunk | RateLimits, None]:
        return self._client.stream(
            "/chat/completions",
            body,
            ChatCompletionStream,
            first_item_name="first token",
            first_timeout_s=self._settings.first_token_timeout_s,
            next_timeout_s=self._settings.token_timeout_s,
        )

    def _body(
        self,
        server: ServerInfo,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        options: LlmOptions,
    ) -> dict[str, object]:
        settings = self._settings
        max_tokens = options.max_output_tokens or settings.max_output_tokens
        has_tools = bool(tools) and settings.tools
        body: dict[str, object] = {
            "model": server.model,
            "temperature": options.resolve_temperature(settings.temperature),
            "top_p": options.top_p,
            "reasoning_effort": options.reasoning_effort,
            "parallel_tool_calls": options.parallel_tool_calls if has_tools else None,
            "response_format": _response_format(options.answer_format),
            "max_tokens": max(1, min(max_tokens, server.context_tokens // CONTEXT_PER_ANSWER)),
            **server.penalty_fields(options.repetition_penalty),
            **(server.no_thinking_fields() if self._forbids_thinking(options) else {}),
            **settings.extra_body,
            "messages": chat_messages(messages),
            "stream": True,
        }
        body.setdefault("stream_options", {"include_usage": True})
        if has_tools:
            body["tools"] = chat_tools(tools)
            if options.must_call:
                body["tool_choice"] = "required"
        return {key: value for key, value in body.items() if value is not None}

    def _stream_error(self, message: str, messages: Sequence[Message]) -> EngineError:
        """Returns the exception for an error message in the stream."""
        quote = sanitized_quote(message, [sent.text for sent in messages])
        # Some servers accept a prompt before they count its tokens.
        kind = ContextLengthExceeded if is_about_length(message) else EngineError
        return kind("llm", self.name, f"{self._client.url}: {quote}")

    def _error(self, why: str) -> EngineError:
        return EngineError("llm", self.name, f"{self._client.url}: {why}")


def _response_format(form: AnswerFormat | None) -> Mapping[str, object] | None:
    """Returns the field `response_format` of a chat request; None: it is left out.

    llama-server, vLLM, Ollama and OpenAI read this form. See OpenAI's guide to structured outputs:
    https://platform.openai.com/docs/guides/structured-outputs
    """
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    schema = {"name": form.name, "schema": form.schema, "strict": form.is_strict}
    given = {name: value for name, value in schema.items() if value is not None}
    return {"type": "json_schema", "json_schema": given}
