"""Chooses the part of a conversation that fits into a language model's context window. Pure.

Model servers cache the beginning of prompts. So the oldest turns are dropped in large steps: most
turns then find all but their last words in that cache.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from core.errors import RequestError
from core.ports import ToolSpec
from engines.base import Message
from pipeline.shared.settings import AS_FITS, ContextTruncation
from pipeline.shared.token_estimate import CALL_TOKENS, json_tokens, text_tokens, tools_tokens

MESSAGE_TOKENS = 6
"Tokens for role and separators, in the widest of the usual templates."
IMAGE_TOKENS = 1600
"Tokens of an image: more than a photo of any size costs with today's models."

LEFT_OUT = " [...] "
"Replaces the middle of a text that is cut."
SHORTEST_TOKENS = 24
"Least tokens of a text that is cut: its beginning and end still say what it was."

_CUT_ORDER = ("tool", "system", "assistant", "user")

TokenCounter = Callable[[Message], int]
"Returns how many tokens a message has."


def message_tokens(message: Message) -> int:
    """Returns an estimate of a message's tokens: text, tool calls, images and separators."""
    calls = sum(
        CALL_TOKENS + text_tokens(call.name) + json_tokens(dict(call.arguments))
        for call in message.tool_calls
    )
    images = IMAGE_TOKENS * len(message.images)
    return MESSAGE_TOKENS + text_tokens(message.text) + calls + images


def reserve_tokens(context_tokens: int, answer_tokens: int, tools: Sequence[ToolSpec]) -> int:
    """Returns the tokens of a context window that are reserved for the answer and the tools.

    The answer gets a quarter at most, answer and tools together three quarters. Lists of names cost
    half of what `text_tokens` estimates. If all of the estimate were reserved, the tools of a large
    home would leave no room for their own results.
    """
    answer = min(answer_tokens, context_tokens // 4)
    return min(answer + tools_tokens(tools), context_tokens * 3 // 4)


def fit_messages(
    messages: Sequence[Message],
    context_tokens: int,
    reserve_tokens: int,
    count: TokenCounter = message_tokens,
    truncation: ContextTruncation = AS_FITS,
) -> list[Message]:
    """Returns the newest messages that fit besides `reserve_tokens` (the answer, the tools).

    System messages at the front and the user's last message always stay. Older turns are dropped as
    whole exchanges, so that no tool result loses its call. If the last exchange alone is too long,
    its finished tool rounds are dropped, and long texts lose their middle. What still does not fit
    is sent anyway, for the model to refuse.

    `count`: returns the tokens of a message. Raises RequestError context_length_exceeded where
    `truncation` does not allow that messages are left out.
    """
    head = list(takewhile(lambda message: message.role == "system", messages))
    spare = context_tokens - reserve_tokens - sum(map(count, head))
    if truncation.max_tokens is not None:
        spare = min(spare, truncation.max_tokens)
    needed = sum(map(count, messages[len(head) :]))
    if needed <= spare:
        return list(messages)
    if not truncation.is_allowed:
        raise RequestError(
            f"the conversation has about {needed} tokens, the model has room for {max(0, spare)}, "
            "and `truncation` is disabled",
            code="context_length_exceeded",
        )
    exchanges = list(_exchanges(messages[len(head) :]))
    costs = [sum(map(count, exchange)) for exchange in exchanges]
    step = max(1, round(spare * (1 - truncation.retention)))
    first = _dropped_count(costs, spare, step)
    kept = [message for exchange in exchanges[first:] for message in exchange]
    if sum(costs[first:]) > spare:
        kept = _squeezed(kept, spare, count)
    return head + kept


def halve_messages(
    messages: Sequence[Message], count: TokenCounter = message_tokens
) -> list[Message]:
    """Returns the newest messages that fit into half of the tokens that the messages after the
    instructions have. For a model that refused all of them without saying how many it takes."""
    system = sum(map(count, takewhile(lambda message: message.role == "system", messages)))
    half = (sum(map(count, messages)) - system) // 2
    return fit_messages(messages, system + half, 0, count, ContextTruncation(retention=1))


def _dropped_count(costs: Sequence[int], spare: int, step: int) -> int:
    """Returns how many exchanges are dropped. They are counted in whole steps from the beginning of
    the conversation: the number stays the same until the conversation has grown by another step."""
    excess = sum(costs) - spare
    # `due`: tokens to drop, rounded up to whole steps
    due, gone, first = -(-excess // step) * step, 0, 0
    while first < len(costs) - 1 and gone < due:
        gone += costs[first]
        first += 1
    return first


def _exchanges(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yields exchanges: what the user said, maybe in several messages, and all that followed. A
    tool call and its late result are never split."""
    answered = {message.call_id for message in messages if message.role == "tool"}
    exchange: list[Message] = []
    waiting: set[str] = set()
    has_answer = False
    for message in messages:
        # A new exchange begins with a user message after an answer, once all calls have their
        # results.
        if message.role == "user" and has_answer and not waiting:
            yield exchange
            exchange, has_answer = [], False
        exchange.append(message)
        has_answer |= message.role in ("assistant", "tool")
        waiting |= {call.call_id for call in message.tool_calls} & answered
        waiting.discard(message.call_id)
    if exchange:
        yield exchange


def _squeezed(messages: Sequence[Message], spare: int, count: TokenCounter) -> list[Message]:
    """Shortens one exchange: keeps its last user message and its last round of tools, cut if need
    be."""
    units = _units(messages)
    spoken = next((unit for unit in reversed(units) if messages[unit[0]].role == "user"), None)
    cost = sum(map(count, messages))
    gone: set[int] = set()
    for unit in units[:-1]:
        if cost > spare and unit is not spoken:
            gone.update(unit)
            cost -= sum(count(messages[at]) for at in unit)
    kept = [message for at, message in enumerate(messages) if at not in gone]
    costs = [count(message) for message in kept]
    order = sorted(range(len(kept)), key=lambda at: (_CUT_ORDER.index(kept[at].role), -costs[at]))
    for at in order:
        if cost <= spare:
            break
        kept[at] = _cut(kept[at], max(SHORTEST_TOKENS, costs[at] - (cost - spare)), count)
        cost -= costs[at] - count(kept[at])
    return kept


def _units(messages: Sequence[Message]) -> list[list[int]]:
    """Returns positions of messages that stay or go together: one message, or calls with their
    results."""
    units: list[list[int]] = []
    unit_of: dict[str, list[int]] = {}
    for at, message in enumerate(messages):
        if message.role == "tool" and message.call_id in unit_of:
            unit_of[message.call_id].append(at)
            continue
        units.append([at])
        unit_of |= {call.call_id: units[-1] for call in message.tool_calls}
    return units


def _cut(message: Message, tokens: int, count: TokenCounter) -> Message:
    """Cuts the middle of a message's text so that it has at most this many tokens."""
    if count(message) <= tokens:
        return message
    low, high = 0, len(message.text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_with_ends(message, middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _with_ends(message, low)


def _with_ends(message: Message, chars: int) -> Message:
    text = message.text
    cut = text[: chars - chars // 2] + LEFT_OUT + text[len(text) - chars // 2 :]
    return replace(message, text=cut)
