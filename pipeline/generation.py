"""An answer's text as the language model writes it, its tools run in between."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from core.errors import ContextExceeded, EngineError
from core.events import Usage
from core.ids import new_id
from core.ports import ToolSpec
from core.rate_limits import RateLimits
from engines.base import CallDelta, Message, TextDelta, ToolCall
from pipeline.arguments import MAX_DEPTH, is_too_deep
from pipeline.calling import Hands, Round, decided, exchanged, record, run
from pipeline.client_tools import Offer, offer
from pipeline.context import fit, halved, reserve_tokens
from pipeline.fillers import Silence
from pipeline.plan import AnswerPlan
from pipeline.tool_results import is_error

logger = logging.getLogger(__name__)

MAX_TOOL_ROUNDS = 6
"A model that calls tools forever is stopped here."

ANSWER_TOKENS = 512
"Of a context kept free for an answer whose length nobody limited: some two minutes of speech."

NO_LIMIT = 1 << 40
"Tokens of a context that nobody can fill."


async def generate(
    plan: AnswerPlan, prompt: Sequence[Message], hands: Hands
) -> AsyncGenerator[str | Usage | RateLimits | CallDelta | ToolCall, None]:
    """Deltas, what each round cost, and what its server said of limits; calls of the client's
    tools as they are written, and whole at the end. Raises EngineError, also when the model calls
    tools without end; RequestError."""
    with Silence(hands.say, hands.fillers, plan.language) as silence:
        async with aclosing(_rounds(plan, prompt, hands, silence)) as deltas:
            async for delta in deltas:
                if isinstance(delta, str):
                    silence.broken(delta)
                yield delta


async def _rounds(
    plan: AnswerPlan, prompt: Sequence[Message], hands: Hands, silence: Silence
) -> AsyncGenerator[str | Usage | RateLimits | CallDelta | ToolCall, None]:
    """Of tools, and what the model writes in between."""
    messages, has_text, has_called, owes = list(prompt), False, False, False
    if plan.remote is not None:
        await plan.remote.ready()
        messages += await decided(plan.remote.approved, hands, silence)
    is_new = len(messages) == len(prompt)
    for number in range(MAX_TOOL_ROUNDS):
        calls: list[ToolCall] = []
        tools = offer(plan, hands.toolbox, hands.context, is_first=is_new and number == 0)
        remote = Round(tools, hands, number)
        async with aclosing(_reply(plan, messages, tools)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text=text):
                        if text.strip():
                            has_text, owes = True, False
                        yield text
                    case CallDelta(name=name):
                        if name in tools.client:
                            yield delta
                        remote.written(delta)
                    case ToolCall():
                        calls.append(delta)
                    case Usage() | RateLimits():
                        yield delta
        _check_depth(calls, plan)
        written, of_client, to_allow = tools.parted(calls)
        calls = _told_apart(written, messages)
        results = await run(remote.batch(written, calls), hands, silence) if calls else []
        owes = owes or any(map(is_error, results))  # what was written before does not tell it
        has_called = has_called or bool(calls)
        for call, result in zip(calls, results, strict=True):
            if call.name not in tools.remote:
                record(call, result, hands.record)
            messages += exchanged(call, result)
        await remote.ask(to_allow)
        for call in of_client:
            yield call
        if of_client or to_allow:
            return  # what follows is the client's to ask for, or to allow
        if not calls:
            break
    else:
        reason = f"{MAX_TOOL_ROUNDS} rounds of tools without an answer"
        raise EngineError("llm", plan.llm.name, reason)
    if owes and (regret := hands.fillers.failed(plan.language)):
        yield f" {regret}" if has_text else regret
    is_empty = is_new and not (has_text or has_called)
    if is_empty and _is_awaited(plan) and (nothing := hands.fillers.nothing(plan.language)):
        yield nothing


def _is_awaited(plan: AnswerPlan) -> bool:
    """Somebody listens: to him silence is no answer, where to a program an empty text is one."""
    return plan.modality == "audio" and plan.terms.in_conversation


async def _reply(
    plan: AnswerPlan, messages: Sequence[Message], tools: Offer
) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | Usage | RateLimits, None]:
    """Asked again with half as much where the model's server counts more tokens than we do, or has
    room for fewer than it said."""
    fitting, has_begun = _fitting(plan, messages, tools.specs), False
    try:
        async with aclosing(_asked(plan, fitting, tools)) as deltas:
            async for delta in deltas:
                has_begun = has_begun or not isinstance(delta, RateLimits)
                yield delta
        return
    except ContextExceeded as exc:
        less = halved(fitting)
        if has_begun or not plan.truncation.is_allowed or less == list(fitting):
            raise
        logger.info("%s; asking with less of the conversation", exc)
    async with aclosing(_asked(plan, less, tools)) as deltas:
        async for delta in deltas:
            yield delta


def _asked(
    plan: AnswerPlan, messages: Sequence[Message], tools: Offer
) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | Usage | RateLimits, None]:
    return plan.llm.reply(messages, tools.specs, language=plan.language, options=tools.options)


def _fitting(
    plan: AnswerPlan, messages: Sequence[Message], specs: Sequence[ToolSpec]
) -> Sequence[Message]:
    """What the model's context has room for."""
    limit, how = plan.llm.context_tokens, plan.truncation
    if limit is None and how.max_tokens is None:
        return messages
    if limit is None:
        limit = NO_LIMIT
    answer = plan.options.max_output_tokens or ANSWER_TOKENS
    return fit(messages, limit, reserve_tokens(limit, answer, specs), how=how)


def _check_depth(calls: Sequence[ToolCall], plan: AnswerPlan) -> None:
    """Before anything acts: such a call could not be shown to the model again."""
    if any(is_too_deep(dict(call.arguments)) for call in calls):
        reason = f"a tool call whose arguments have more than {MAX_DEPTH} levels"
        raise EngineError("llm", plan.llm.name, reason)


def _told_apart(calls: Sequence[ToolCall], messages: Sequence[Message]) -> list[ToolCall]:
    """Models repeat their ids; in a history each result belongs to one call."""
    taken = {call.call_id for message in messages for call in message.tool_calls}
    apart: list[ToolCall] = []
    for call in calls:
        is_new = call.call_id not in taken
        apart.append(call if is_new else replace(call, call_id=new_id("call")))
        taken.add(call.call_id)
    return apart
