"""Generation of a response's text by the language model, with rounds of tools in between."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from core.errors import ContextLengthExceeded, EngineError
from core.events import RateLimits, TokenUsage
from core.ids import new_id
from core.ports import ToolSpec
from engines.base import CallDelta, Message, TextDelta, ToolCall, ToolFilterLlm
from pipeline.conversation.context_window import fit_messages, halve_messages, reserve_tokens
from pipeline.conversation.history import is_after_silence
from pipeline.response.plan import ResponsePlan
from pipeline.tools.arguments import MAX_DEPTH, is_too_deep
from pipeline.tools.fillers import SilenceTimer
from pipeline.tools.mcp.tool import ApprovalDecision
from pipeline.tools.offer import ToolOffer, offer_tools
from pipeline.tools.results import is_error
from pipeline.tools.rounds import (
    McpCallRound,
    ToolAccess,
    call_messages,
    record_call,
    run_calls,
    run_decided_calls,
)

logger = logging.getLogger(__name__)

MAX_TOOL_ROUNDS = 6
"Most rounds of one response: a model that calls tools without end is stopped here."

ANSWER_TOKENS = 512
"Tokens of the context window kept free for an answer without a limit: some two minutes of speech."

NO_LIMIT = 1 << 40
"Stands for a context window without a known limit. No prompt can fill it."


async def generate(
    plan: ResponsePlan, prompt: Sequence[Message], access: ToolAccess
) -> AsyncGenerator[str | TokenUsage | RateLimits | CallDelta | ToolCall, None]:
    """Generates a response: runs the model, runs the tools that it calls, and shows it the results.

    Yields text; usage and rate limits after each round; tool calls for the client as they are
    written (CallDelta), and whole at the end (ToolCall). Raises EngineError, also if the model
    calls tools without end, and RequestError.
    """
    with SilenceTimer(access.say, access.fillers, plan.language) as silence:
        async with aclosing(_rounds(plan, prompt, access, silence)) as deltas:
            async for delta in deltas:
                if isinstance(delta, str):
                    silence.on_text(delta)
                yield delta


async def _rounds(
    plan: ResponsePlan, prompt: Sequence[Message], access: ToolAccess, silence: SilenceTimer
) -> AsyncGenerator[str | TokenUsage | RateLimits | CallDelta | ToolCall, None]:
    """Yields the model's text and calls. Runs up to MAX_TOOL_ROUNDS rounds of tools in between."""
    messages, has_text, has_called = list(prompt), False, False
    failed: set[str] = set()
    "Names of tools that failed and that the model's text has not mentioned since."
    if plan.remote is not None:
        await plan.remote.ready()
        messages += await run_decided_calls(plan.remote.approved, access, silence)
        failed = _failed(plan.remote.approved, messages)
    is_new = len(messages) == len(prompt)
    for number in range(MAX_TOOL_ROUNDS):
        calls: list[ToolCall] = []
        tools = offer_tools(plan, access.toolbox, access.context, is_first=is_new and number == 0)
        tools = _select_tools(tools, plan, access, messages)
        remote = McpCallRound(tools, access, number)
        async with aclosing(_reply(plan, messages, tools)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text=text):
                        if text.strip():
                            has_text = True
                            failed.clear()
                        yield text
                    case CallDelta(name=name):
                        if name in tools.client:
                            yield delta
                        remote.written(delta)
                    case ToolCall():
                        calls.append(delta)
                    case TokenUsage() | RateLimits():
                        yield delta
        _check_depth(calls, plan)
        written, of_client, to_allow = tools.split(calls)
        calls = _with_unique_ids(written, messages)
        results = await run_calls(remote.batch(written, calls), access, silence) if calls else []
        failed = _still_failed(failed, calls, results)  # the text before could not tell of these
        has_called = has_called or bool(calls)
        for call, result in zip(calls, results, strict=True):
            if call.name not in tools.remote:
                record_call(call, result, access.record)
            messages += call_messages(call, result)
        await remote.ask(to_allow)
        for call in of_client:
            yield call
        if of_client or to_allow:
            # the client must run its tools, or approve MCP calls, and then request the next
            # response
            return
        if not calls:
            break
    else:
        reason = f"{MAX_TOOL_ROUNDS} rounds of tools without an answer"
        raise EngineError("llm", plan.llm.name, reason)
    if failed and (apology := access.fillers.failed(plan.language)):
        yield f" {apology}" if has_text else apology
    is_empty = is_new and not (has_text or has_called)
    if is_empty and _awaits_words(plan, prompt):
        yield access.fillers.nothing(plan.language) or ""


def _select_tools(
    tools: ToolOffer, plan: ResponsePlan, access: ToolAccess, messages: Sequence[Message]
) -> ToolOffer:
    """Returns the offer with only the tools that the model probably needs.

    The model may call the others all the same. If it must call a tool, it is shown all.
    """
    if tools.options.must_call:
        return tools
    needs_home = isinstance(plan.llm, ToolFilterLlm)
    specs = access.toolbox.offered(
        tools.specs,
        messages,
        plan.language,
        needs_home=needs_home,
        context_tokens=plan.llm.context_tokens,
    )
    return replace(tools, specs=tuple(specs))


def _awaits_words(plan: ResponsePlan, prompt: Sequence[Message]) -> bool:
    """Returns whether a user listens and waits for words, so that silence is no answer.

    False for a text response, which a program reads; after the result of a client's tool; and after
    the user's silence.
    """
    is_heard = plan.modality == "audio" and plan.parameters.in_conversation
    has_asked = bool(prompt) and prompt[-1].role == "user" and not is_after_silence(plan.input)
    return is_heard and has_asked


def _failed(approved: Sequence[ApprovalDecision], messages: Sequence[Message]) -> set[str]:
    """Returns the names of approved tools whose call failed.

    Denied calls are left out: the user expects nothing from them.
    """
    allowed = {one.call.call_id: one.call.name for one in approved if one.approve}
    results = {message.call_id: message.text for message in messages if message.role == "tool"}
    return {name for call_id, name in allowed.items() if is_error(results[call_id])}


def _still_failed(failed: set[str], calls: Sequence[ToolCall], results: Sequence[str]) -> set[str]:
    """Returns the tools that have failed and not succeeded since, after one more round.

    Success of the same tool makes up for its failure. Success of another tool does not: it may only
    have looked something up.
    """
    ends = [(call.name, is_error(result)) for call, result in zip(calls, results, strict=True)]
    done = {name for name, has_failed in ends if not has_failed}
    return (failed - done) | {name for name, has_failed in ends if has_failed}


async def _reply(
    plan: ResponsePlan, messages: Sequence[Message], tools: ToolOffer
) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
    """Asks the model, and once more with half the messages if the context was exceeded.

    That happens when the model's server counts more tokens than we do, or has a smaller window than
    it reported.
    """
    fitting, has_begun = _fitting(plan, messages, tools.specs), False
    try:
        async with aclosing(_ask_model(plan, fitting, tools)) as deltas:
            async for delta in deltas:
                has_begun = has_begun or not isinstance(delta, RateLimits)
                yield delta
        return
    except ContextLengthExceeded as exc:
        halved = halve_messages(fitting)
        if has_begun or not plan.truncation.is_allowed or halved == list(fitting):
            raise
        logger.info("%s; trying again with a shorter conversation", exc)
    async with aclosing(_ask_model(plan, halved, tools)) as deltas:
        async for delta in deltas:
            yield delta


def _ask_model(
    plan: ResponsePlan, messages: Sequence[Message], tools: ToolOffer
) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
    return plan.llm.reply(messages, tools.specs, language=plan.language, options=tools.options)


def _fitting(
    plan: ResponsePlan, messages: Sequence[Message], specs: Sequence[ToolSpec]
) -> Sequence[Message]:
    """Returns the messages that fit into the model's context window."""
    limit, how = plan.llm.context_tokens, plan.truncation
    if limit is None and how.max_tokens is None:
        return messages
    if limit is None:
        limit = NO_LIMIT
    answer = plan.options.max_output_tokens or ANSWER_TOKENS
    if isinstance(plan.llm, ToolFilterLlm):
        specs = plan.llm.declared(specs, language=plan.language)
    return fit_messages(messages, limit, reserve_tokens(limit, answer, specs), how=how)


def _check_depth(calls: Sequence[ToolCall], plan: ResponsePlan) -> None:
    """Raises EngineError for arguments that are nested too deep.

    Checked before any tool acts: the model could not be shown such a call again.
    """
    if any(is_too_deep(dict(call.arguments)) for call in calls):
        reason = f"a tool call whose arguments have more than {MAX_DEPTH} levels"
        raise EngineError("llm", plan.llm.name, reason)


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
