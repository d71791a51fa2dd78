"""Generation of a response's text by the language model, with rounds of tools in between."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

from core.conversation.ids import new_id
from core.conversation.usage import RateLimits, TokenUsage
from core.errors import AnswerFormatBroken, ContextLengthExceeded, EngineError
from core.ports import Metrics, ToolSpec
from engines.base import (
    AnswerFormat,
    CallDelta,
    LayeredLlm,
    Message,
    TextDelta,
    ToolCall,
    ToolFilterLlm,
)
from pipeline.conversation.answer_format import InvalidAnswer, check_answer, form_messages
from pipeline.conversation.context_window import (
    fit_messages,
    halve_messages,
    message_tokens,
    reserve_tokens,
)
from pipeline.conversation.history import is_after_silence
from pipeline.response.plan import ResponsePlan
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.tools.calls.arguments import MAX_DEPTH, is_too_deep
from pipeline.tools.calls.results import is_error, spoken_error
from pipeline.tools.calls.rounds import (
    McpCallRound,
    ToolAccess,
    ToolOffer,
    call_messages,
    offer_tools,
    record_call,
    run_calls,
    run_decided_calls,
)
from pipeline.tools.fillers import SilenceTimer
from pipeline.tools.mcp.tool import ApprovalDecision

logger = logging.getLogger(__name__)

MAX_TOOL_ROUNDS = 6
"Most rounds of one response: a model that calls tools without end is stopped here."

ANSWER_TOKENS = 512
"Tokens of the context window kept free for an answer without a limit: some two minutes of speech."

NO_LIMIT = 1 << 40
"Stands for a context window without a known limit. No prompt can fill it."

LlmSlotContext = Callable[[], AbstractAsyncContextManager[None]]
"Makes the context of one request to the model. It is left when the request has been closed."

LlmDelta = TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits
"A piece of a language model's reply."

GeneratedDelta = str | TokenUsage | RateLimits | CallDelta | ToolCall
"""A piece of a response: text; usage and rate limits after each round; tool calls for the client,
as they are written (CallDelta), and whole at the end (ToolCall)."""


@dataclass(slots=True)
class _Round:
    """One request to the model, repeated once if its prompt was too long, and the calls in its
    reply."""

    number: int
    tools: ToolOffer
    messages: Sequence[Message]
    mcp_calls: McpCallRound
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    form: AnswerFormat | None = None
    "Form of the reply, which is the response. None: free text."
    is_draft: bool = False
    "True: the reply is not shown, because a later round gives it its form."
    texts: list[str] = field(default_factory=list[str])
    "Pieces of the reply."
    output_tokens: int | None = None
    "Number of tokens of the reply; None: the engine has not counted them."
    has_begun: bool = False
    "True when the model has sent a part of its reply."
    is_repeated: bool = False


class TextGeneration:
    """Generates the text of one response: runs the model, runs the tools that it calls, and shows
    it the results.

        generation = TextGeneration(plan, prompt, access, slot, metrics)
        async with aclosing(generation.stream()) as deltas:
            async for delta in deltas:
                ...
    """

    def __init__(
        self,
        plan: ResponsePlan,
        prompt: Sequence[Message],
        access: ToolAccess,
        slot: LlmSlotContext,
        metrics: Metrics,
    ) -> None:
        """Takes the plan and the prompt of the response, and the tools that it may use.

        slot: context that holds an LLM slot; opened around each request to the model.
        """
        self._plan, self._prompt, self._access = plan, prompt, access
        self._slot, self._metrics = slot, metrics
        self._silence = SilenceTimer(access.say, access.fillers, plan.language)
        self._messages = list(prompt)
        "The prompt, then the tool calls and their results."
        self._failed: set[str] = set()
        "Names of tools that failed and that the model's text has not mentioned since."
        self._spoken_error: str | None = None
        "Sentence for the user in the error of a tool that ran last."
        self._has_text = self._has_called = False

    async def stream(self) -> AsyncGenerator[GeneratedDelta, None]:
        """Yields the response piece by piece. Closing it closes the request to the model.

        The loop is flat on purpose: each token passes only this generator between model and reader.
        Raises EngineError, also if the model calls tools without end, and RequestError.
        """
        if self._plan.text is not None:
            yield self._plan.text
            return
        with self._silence:
            await self._run_decided_calls()
            round_ = self._next_round(0)
            while True:
                try:
                    async with self._request(round_) as deltas:
                        async for delta in deltas:
                            if not isinstance(delta, RateLimits):
                                round_.has_begun = True
                            match delta:
                                case TextDelta(text=text):
                                    self._note_text(text)
                                    round_.texts.append(text)
                                    if not round_.is_draft:
                                        yield text
                                case CallDelta(name=name):
                                    if name in round_.tools.client:
                                        yield delta
                                    round_.mcp_calls.report_arguments(delta)
                                case ToolCall():
                                    round_.calls.append(delta)
                                case TokenUsage():
                                    round_.output_tokens = delta.output_tokens
                                    yield delta
                                case RateLimits():
                                    yield delta
                except ContextLengthExceeded as exc:
                    self._shorten(round_, exc)
                    continue
                if round_.form is not None:
                    self._check_form(round_, round_.form)
                    return
                self._check_depth(round_.calls)
                own, of_client, to_approve = round_.tools.split(round_.calls)
                await self._run_calls(own, round_)
                await round_.mcp_calls.ask(to_approve)
                for call in of_client:
                    yield call
                # the client must run its tools, or approve MCP calls, and then request the next
                # response
                if of_client or to_approve:
                    return
                if own:
                    round_ = self._next_round(round_.number + 1)
                elif round_.is_draft:
                    round_ = self._form_round(round_.number + 1, "".join(round_.texts))
                else:
                    break
            if sentence := self._closing_sentence():
                yield sentence

    async def _run_decided_calls(self) -> None:
        """Runs the MCP calls that the client approved since the last response."""
        if (offer := self._plan.mcp_offer) is None:
            return
        await offer.ready()
        self._messages += await run_decided_calls(offer.approved, self._access, self._silence)
        self._failed = _failed(offer.approved, self._messages)

    def _next_round(self, number: int) -> _Round:
        """Returns the round to begin, counted from 0. Raises EngineError after the last one."""
        plan, access = self._plan, self._access
        if number == MAX_TOOL_ROUNDS:
            reason = f"{MAX_TOOL_ROUNDS} rounds of tools without an answer"
            raise EngineError("llm", plan.llm.name, reason)
        is_first = number == 0 and self._is_new
        tools = offer_tools(plan, access.toolbox, access.context, is_first=is_first)
        tools = self._selected(tools)
        has_form = plan.options.answer_format is not None
        if has_form:
            # Templates in front of the model may answer without a tool, too.
            if number == 0 and not tools.specs and not isinstance(plan.llm, LayeredLlm):
                return self._form_round(number, None)
            tools = replace(tools, options=replace(tools.options, answer_format=None))
        return _Round(
            number,
            tools,
            self._fitting(self._messages, tools.specs),
            McpCallRound(tools, access, number),
            is_draft=has_form,
        )

    def _form_round(self, number: int, draft: str | None) -> _Round:
        """Returns the round whose reply is the response in its form. It has no tools: a grammar
        leaves no room for calls. draft: the answer in free text; None: there is none."""
        plan, access = self._plan, self._access
        form = plan.options.answer_format
        assert form is not None
        if draft is not None:
            draft = f"{draft}{self._closing_sentence() or ''}".strip()
        messages, request = form_messages(self._messages, form, draft)
        tools = ToolOffer((), plan.options, frozenset(), frozenset())
        return _Round(
            number,
            tools,
            [*self._fitting(messages, (), request), *request],
            McpCallRound(tools, access, number),
            form=form,
        )

    def _check_form(self, round_: _Round, form: AnswerFormat) -> None:
        """Raises AnswerFormatBroken if the reply has not its form, unless the caller's limit cut
        it: then the door says so."""
        limit, written = self._plan.options.max_output_tokens, round_.output_tokens
        if limit is not None and written is not None and written >= limit:
            return
        try:
            check_answer("".join(round_.texts), form)
        except InvalidAnswer as exc:
            why = f"its answer {exc}"
            raise AnswerFormatBroken("llm", self._plan.llm.name, why) from None

    @property
    def _is_new(self) -> bool:
        """True while the model sees no tool call beyond those in its prompt."""
        return len(self._messages) == len(self._prompt)

    @asynccontextmanager
    async def _request(self, round_: _Round) -> AsyncIterator[AsyncGenerator[LlmDelta, None]]:
        """Takes an LLM slot and opens a request to the model. Raises only subclasses of
        EarshotError."""
        plan, tools = self._plan, round_.tools
        async with self._slot():
            with plugin_errors("llm", plan.llm.name, self._metrics):
                reply = plan.llm.reply(
                    round_.messages, tools.specs, language=plan.language, options=tools.options
                )
                async with aclosing(reply):
                    yield reply

    def _note_text(self, text: str) -> None:
        self._silence.on_text(text)
        if text.strip():
            self._has_text = True
            self._failed.clear()

    def _shorten(self, round_: _Round, exc: ContextLengthExceeded) -> None:
        """Drops half of the messages, for one more request. Raises `exc` where that cannot help.

        Needed when the model's server counts more tokens than we estimate, or has a smaller window
        than it reported.
        """
        halved = halve_messages(round_.messages)
        is_allowed = self._plan.truncation.is_allowed and not round_.is_repeated
        if round_.has_begun or not is_allowed or halved == list(round_.messages):
            raise exc
        logger.info("%s; trying again with a shorter conversation", exc)
        round_.messages, round_.is_repeated = halved, True

    def _check_depth(self, calls: Sequence[ToolCall]) -> None:
        """Raises EngineError for arguments that are nested too deep.

        Checked before any tool acts: the model could not be shown such a call again.
        """
        if any(is_too_deep(dict(call.arguments)) for call in calls):
            reason = f"a tool call whose arguments have more than {MAX_DEPTH} levels"
            raise EngineError("llm", self._plan.llm.name, reason)

    async def _run_calls(self, model_calls: Sequence[ToolCall], round_: _Round) -> None:
        """Runs the server's calls, adds them to the history, and shows their results to the
        model."""
        if not model_calls:
            return
        access = self._access
        calls = _with_unique_ids(model_calls, self._messages)
        batch = round_.mcp_calls.batch(model_calls, calls)
        results = await run_calls(batch, access, self._silence)
        # text that the model wrote before the calls cannot have mentioned these failures
        self._failed = _still_failed(self._failed, calls, results)
        self._spoken_error = next(filter(None, map(spoken_error, results)), None)
        self._has_called = True
        for call, result in zip(calls, results, strict=True):
            if call.name not in round_.tools.mcp_tools:
                record_call(call, result, access.record)
            self._messages += call_messages(call, result)

    def _closing_sentence(self) -> str | None:
        """Returns an apology for tools whose failure the model did not mention, or a sentence in
        place of a text that the model did not write. None: the user needs neither."""
        fillers, language = self._access.fillers, self._plan.language
        if self._failed and (apology := self._spoken_error or fillers.tool_failure(language)):
            return f" {apology}" if self._has_text else apology
        is_empty = self._is_new and not (self._has_text or self._has_called)
        return fillers.empty_answer(language) if is_empty and self._awaits_words() else None

    def _awaits_words(self) -> bool:
        """Returns whether a user listens and waits for words, so that silence is no answer.

        False for a text response, which a program reads; after the result of a client's tool; and
        after the user's silence.
        """
        plan, prompt = self._plan, self._prompt
        is_heard = plan.modality == "audio" and plan.parameters.in_conversation
        has_asked = bool(prompt) and prompt[-1].role == "user" and not is_after_silence(plan.input)
        return is_heard and has_asked

    def _selected(self, tools: ToolOffer) -> ToolOffer:
        """Returns the offer with only the tools that the model probably needs, to keep the prompt
        short.

        The model may call the others all the same. If it must call a tool, it is shown all.
        """
        if tools.options.must_call:
            return tools
        specs = self._access.toolbox.offered(
            tools.specs,
            self._messages,
            self._plan.language,
            needs_home=isinstance(self._plan.llm, ToolFilterLlm),
            context_tokens=self._context_tokens(),
        )
        return replace(tools, specs=tuple(specs))

    def _fitting(
        self,
        messages: Sequence[Message],
        specs: Sequence[ToolSpec],
        added: Sequence[Message] = (),
    ) -> Sequence[Message]:
        """Returns the messages that fit into the model's context window. added: messages that come
        behind them, and are left whole."""
        plan, limit = self._plan, self._context_tokens()
        truncation = plan.truncation
        if limit is None and truncation.max_tokens is None:
            return list(messages)
        if limit is None:
            limit = NO_LIMIT
        answer = plan.options.max_output_tokens or ANSWER_TOKENS
        if isinstance(plan.llm, ToolFilterLlm):
            with plugin_errors("llm", plan.llm.name, self._metrics):
                specs = plan.llm.filter_tools(specs, language=plan.language)
        reserve = reserve_tokens(limit, answer, specs) + sum(map(message_tokens, added))
        return fit_messages(messages, limit, reserve, truncation=truncation)

    def _context_tokens(self) -> int | None:
        """Returns the model's context window. Some models know it only after a request."""
        with plugin_errors("llm", self._plan.llm.name, self._metrics):
            return self._plan.llm.context_tokens


def _failed(approved: Sequence[ApprovalDecision], messages: Sequence[Message]) -> set[str]:
    """Returns the names of approved tools whose call failed.

    Denied calls are left out: the user expects nothing from them.
    """
    allowed = {
        decision.call.call_id: decision.call.name for decision in approved if decision.approve
    }
    results = {message.call_id: message.text for message in messages if message.role == "tool"}
    return {name for call_id, name in allowed.items() if is_error(results[call_id])}


def _still_failed(failed: set[str], calls: Sequence[ToolCall], results: Sequence[str]) -> set[str]:
    """Returns the tools that have failed and not succeeded since, after one more round.

    A later success of the same tool cancels its failure. Success of another tool does not: it may
    only have looked something up.
    """
    ends = [(call.name, is_error(result)) for call, result in zip(calls, results, strict=True)]
    done = {name for name, has_failed in ends if not has_failed}
    return (failed - done) | {name for name, has_failed in ends if has_failed}


def _with_unique_ids(calls: Sequence[ToolCall], messages: Sequence[Message]) -> list[ToolCall]:
    """Returns the calls with unique ids: models repeat theirs, and a history needs one call per
    id."""
    taken = {call.call_id for message in messages for call in message.tool_calls}
    unique: list[ToolCall] = []
    for call in calls:
        is_new = call.call_id not in taken
        unique.append(call if is_new else replace(call, call_id=new_id("call")))
        taken.add(call.call_id)
    return unique
