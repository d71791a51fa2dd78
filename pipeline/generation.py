"""An answer's text as the language model writes it, its tools run in between."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from core.errors import EngineError
from core.events import Usage
from core.ids import new_id
from core.items import FunctionCallItem, FunctionOutputItem, Item
from core.ports import ToolContext, ToolSpec
from engines.base import CallDelta, Message, TextDelta, ToolCall
from pipeline.arguments import MAX_DEPTH, is_too_deep
from pipeline.client_tools import Offer, offer
from pipeline.context import fit, reserve_tokens
from pipeline.fillers import Fillers, with_filler
from pipeline.plan import AnswerPlan
from pipeline.tools import Toolbox

MAX_TOOL_ROUNDS = 6
"A model that calls tools forever is stopped here."

ANSWER_TOKENS = 512
"Of a context kept free for an answer whose length nobody limited: some two minutes of speech."

NO_LIMIT = 1 << 40
"Tokens of a context that nobody can fill."

INTERRUPTED = '{"error":"interrupted","message":"no result was waited for; it may still happen"}'
"Of a call that changes something: a model that knew nothing of it would make it again."


@dataclass(frozen=True, slots=True)
class Hands:
    """What an answer may do besides talking."""

    toolbox: Toolbox
    context: ToolContext
    is_confirmed: Callable[[], Awaitable[object]]
    "Waited for before a tool that changes something: the turn may not be over."
    record: Callable[[Item], None]
    "Takes calls and their results, for the history."
    fillers: Fillers = field(default_factory=Fillers)
    say: Callable[[str], None] = lambda _: None
    "Takes what is said while a tool is slow."


async def generate(
    plan: AnswerPlan, prompt: Sequence[Message], hands: Hands
) -> AsyncGenerator[str | Usage | CallDelta | ToolCall, None]:
    """Deltas, and what each round cost; calls of the client's tools as they are written, and whole
    at the end. Raises EngineError, also when the model calls tools without end; RequestError."""
    messages, has_text, has_failed = list(prompt), False, False
    for number in range(MAX_TOOL_ROUNDS):
        calls: list[ToolCall] = []
        tools = offer(plan, hands.toolbox, hands.context, is_first=number == 0)
        async with aclosing(_reply(plan, messages, tools)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text=text):
                        has_text = has_text or bool(text.strip())
                        yield text
                    case CallDelta(name=name):
                        if name in tools.client:
                            yield delta
                    case ToolCall():
                        calls.append(delta)
                    case Usage():
                        yield delta
        _check_depth(calls, plan)
        calls, of_client = tools.parted(calls)
        calls = _told_apart(calls, messages)
        results = await _run(calls, tools, plan, hands) if calls else []
        has_failed = has_failed or any(map(_is_error, results))
        for call, result in zip(calls, results, strict=True):
            _record(call, result, hands.record)
            messages.append(Message("assistant", tool_calls=(call,)))
            messages.append(Message("tool", result, call_id=call.call_id))
        for call in of_client:
            yield call
        if of_client:
            return  # what follows is the client's to ask for
        if not calls:
            break
    else:
        reason = f"{MAX_TOOL_ROUNDS} rounds of tools without an answer"
        raise EngineError("llm", plan.llm.name, reason)
    if has_failed and not has_text and (regret := hands.fillers.failed(plan.language)):
        yield regret


def _reply(
    plan: AnswerPlan, messages: Sequence[Message], tools: Offer
) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | Usage, None]:
    fitting = _fitting(plan, messages, tools.specs)
    return plan.llm.reply(fitting, tools.specs, language=plan.language, options=tools.options)


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


async def _run(
    calls: Sequence[ToolCall], tools: Offer, plan: AnswerPlan, hands: Hands
) -> list[str]:
    if not all(hands.toolbox.may_run_early(call, hands.context) for call in calls):
        await hands.is_confirmed()
    work = hands.toolbox.run(calls, hands.context, tools.server)
    try:
        return await with_filler(work, hands.say, hands.fillers, plan.language)
    except asyncio.CancelledError:  # who interrupts says something, and the model is asked again
        for call in calls:
            if not hands.toolbox.may_run_early(call, hands.context):
                _record(call, INTERRUPTED, hands.record)
        raise


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


def _is_error(result: str) -> bool:
    decoded = json.loads(result)
    return isinstance(decoded, dict) and "error" in decoded


def _record(call: ToolCall, result: str, record: Callable[[Item], None]) -> None:
    arguments = json.dumps(dict(call.arguments))
    record(FunctionCallItem(new_id("item"), call.call_id, call.name, arguments))
    record(FunctionOutputItem(new_id("item"), call.call_id, result))
