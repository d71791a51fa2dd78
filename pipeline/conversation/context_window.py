"""What of a conversation fits into a model's context. Pure.

Servers cache what prompts begin with, so the oldest turns go in large steps: most turns then find
everything but their last words in that cache.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from core.errors import RequestError
from core.ports import ToolSpec
from engines.base import Message
from pipeline.shared.settings import AS_FITS, ContextTruncation
from pipeline.shared.token_estimate import CALL_TOKENS, json_tokens, text_tokens, tools_tokens

STEPS = 4
"Steps of a context's size: a long conversation fills between 3/4 and all of it."

MESSAGE_TOKENS = 6
"Role and separators, in the widest of the usual templates."
IMAGE_TOKENS = 1600
"More than a photo costs with today's models, whatever its size."

LEFT_OUT = " [...] "
SHORTEST_TOKENS = 24
"Of a text that is cut: its beginning and its end still say what it was."

_CUT_ORDER = ("tool", "system", "assistant", "user")

TokenCounter = Callable[[Message], int]


def message_tokens(message: Message) -> int:
    """As `text_tokens`, with what is around it."""
    calls = sum(
        CALL_TOKENS + text_tokens(call.name) + json_tokens(dict(call.arguments))
        for call in message.tool_calls
    )
    images = IMAGE_TOKENS * len(message.images)
    return MESSAGE_TOKENS + text_tokens(message.text) + calls + images


def reserve_tokens(context_tokens: int, answer_tokens: int, tools: Sequence[ToolSpec]) -> int:
    """What of a context is kept from the messages: for the answer a quarter at most, and with the
    tools three quarters. Lists of names cost half of what `text_tokens` says; were all of that
    kept, the tools of a large home would leave no room for their own results."""
    answer = min(answer_tokens, context_tokens // 4)
    return min(answer + tools_tokens(tools), context_tokens * 3 // 4)


def fit_messages(
    messages: Sequence[Message],
    context_tokens: int,
    reserve_tokens: int,
    count: TokenCounter = message_tokens,
    how: ContextTruncation = AS_FITS,
) -> list[Message]:
    """The newest messages for which there is room beside `reserve_tokens` (the answer, the tools).

    System messages at the front and the user's last words always stay. Older turns go as whole
    exchanges, so that no tool result loses its call. When the last exchange alone is too much, its
    finished tool rounds go, and long texts lose their middle. What cannot fit is left to the model
    to refuse. Raises RequestError context_length_exceeded where nothing may be left out.
    """
    head = list(takewhile(lambda message: message.role == "system", messages))
    spare = context_tokens - reserve_tokens - sum(map(count, head))
    if how.max_tokens is not None:
        spare = min(spare, how.max_tokens)
    needed = sum(map(count, messages[len(head) :]))
    if needed <= spare:
        return list(messages)
    if not how.is_allowed:
        raise RequestError(
            f"the conversation has some {needed} tokens, the model has room for {max(0, spare)}, "
            "and `truncation` is disabled",
            code="context_length_exceeded",
        )
    exchanges = list(_exchanges(messages[len(head) :]))
    costs = [sum(map(count, exchange)) for exchange in exchanges]
    step = max(1, round(spare * (1 - how.retention)))
    first = _first_kept(costs, spare, step)
    kept = [message for exchange in exchanges[first:] for message in exchange]
    if sum(costs[first:]) > spare:
        kept = _squeezed(kept, spare, count)
    return head + kept


def halve_messages(
    messages: Sequence[Message], count: TokenCounter = message_tokens
) -> list[Message]:
    """As `fit`, for half of what the messages after the instructions cost: for a model that refused
    all of it without saying how much it would have taken."""
    system = sum(map(count, takewhile(lambda message: message.role == "system", messages)))
    half = (sum(map(count, messages)) - system) // 2
    return fit_messages(messages, system + half, 0, count, ContextTruncation(retention=1))


def _first_kept(costs: Sequence[int], spare: int, step: int) -> int:
    """How many exchanges go. What goes is counted from the beginning of the conversation, in whole
    steps: it stays the same until the conversation has grown by another step."""
    excess = sum(costs) - spare
    due, gone, first = -(-excess // step) * step, 0, 0
    while first < len(costs) - 1 and gone < due:
        gone += costs[first]
        first += 1
    return first


def _exchanges(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """What the user said, maybe in pieces, and all that came of it. A call whose result is late
    holds together what is between them."""
    answered = {message.call_id for message in messages if message.role == "tool"}
    exchange: list[Message] = []
    waiting: set[str] = set()
    has_answer = False
    for message in messages:
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
    """Less of one exchange: its last user message and its last round of tools, cut if need be."""
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
    """Positions of what stays or goes together: a message, or calls with their results."""
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
    """Without as much of the middle of its text as it must lose."""
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
