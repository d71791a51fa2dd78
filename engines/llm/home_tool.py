"""One tool that stands for all tools of the home: it takes a sentence, as its user would say it.

The tools of a home with forty devices are 28 kB of JSON, more than small models take and most of
what a request costs. The sentence is carried out by the engine `intents`, which knows those tools.
Pure.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.ports import ToolSpec
from engines.base import Message, ToolCall
from engines.llm.intents.home_names import INTENT, names_of

NAME = "home"
OTHER_NAME = "earshot_home"
"Where somebody else's tool is called `home`."

MAX_AREAS_CHARS = 400
"""The most characters of area names in the description. A model that knows none says `the kitchen`
all the same."""

NOT_UNDERSTOOD = json.dumps(
    {
        "error": "not_understood",
        "message": "Say it as one short command or question with the names of device and room, "
        "as in: turn on the kitchen lights. If it is not about the home, answer without a tool.",
    }
)


@dataclass(frozen=True, slots=True)
class HomeCommandTool:
    """The tools that a model is shown in place of those of the home."""

    name: str
    shown: tuple[ToolSpec, ...]


def home_tool(tools: Sequence[ToolSpec]) -> HomeCommandTool | None:
    """None: there is none of the home among them."""
    others = tuple(tool for tool in tools if not _is_of_home(tool))
    ours = [tool for tool in tools if _is_of_home(tool)]
    if not ours:
        return None
    is_taken = any(tool.name == NAME for tool in others)
    name = OTHER_NAME if is_taken else NAME
    return HomeCommandTool(name, (_spec(name, names_of(ours).areas), *others))


def sentence_of(call: ToolCall) -> str:
    """The sentence that the model wants carried out; empty where it gave none."""
    sentence = call.arguments.get("sentence")
    return sentence.strip() if isinstance(sentence, str) else ""


def messages_as_shown(
    messages: Sequence[Message],
    name: str,
    is_of_home: Callable[[ToolCall], bool],
    sentence: Callable[[ToolCall], str | None],
) -> list[Message]:
    """A conversation with the calls of the home's tools as calls of the one tool that the model
    knows. `sentence`: what a call was made of; None: of the user's last words."""
    shown: list[Message] = []
    said, last = "", None
    hidden: set[str] = set()
    for message in messages:
        if message.role == "user":
            said, last = message.text, None
        if message.role == "tool" and message.call_id in hidden:
            continue
        kept: list[ToolCall] = []
        for call in message.tool_calls:
            if not is_of_home(call):
                kept.append(call)
                continue
            asked = sentence(call) or said
            if asked == last:  # one sentence may be several calls: their first result stands for it
                hidden.add(call.call_id)
                continue
            last = asked
            kept.append(ToolCall(call.call_id, name, {"sentence": asked}))
        if message.tool_calls and not kept and not message.text:
            continue
        shown.append(replace(message, tool_calls=tuple(kept)) if message.tool_calls else message)
    return shown


def _is_of_home(tool: ToolSpec) -> bool:
    """Those of an MCP server have a second name to fall back on, those of a client are marked:
    they are the model's own, whatever they are called."""
    if tool.is_clients:
        return False
    is_ours = tool.name.startswith(INTENT) and not tool.fallback_name
    return is_ours or tool.house is not None


def _spec(name: str, areas: Sequence[str]) -> ToolSpec:
    listed = ", ".join(areas)
    if len(listed) > MAX_AREAS_CHARS:
        listed = listed[:MAX_AREAS_CHARS].rpartition(", ")[0]
    where = f" Rooms: {listed}." if listed else ""
    return ToolSpec(
        name,
        "Does or answers one thing in the home: lights, covers, locks, switches, heating, fans, "
        "music, timers, the shopping list, the time and the date. Takes a short sentence in the "
        f"user's language with the names of device and room.{where}",
        {
            "type": "object",
            "properties": {
                "sentence": {
                    "type": "string",
                    "description": "For example: turn on the kitchen lights",
                }
            },
            "required": ["sentence"],
        },
    )
