"""One tool that replaces all tools of the home. It takes a sentence, worded as a user would say it.

The tools of a home with forty devices are 28 kB of JSON: more than small models take, and most of
the cost of a request. The engine `intents`, which knows those tools, carries out the sentence.
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
"Name used instead when another tool is already called `home`."

MAX_AREAS_CHARS = 400
"""Longest list of area names in the description, in characters. A model that is given no names
still says `the kitchen`."""

NOT_UNDERSTOOD = json.dumps(
    {
        "error": "not_understood",
        "message": "Say it as one short command or question with the names of device and room, "
        "as in: turn on the kitchen lights. If it is not about the home, answer without a tool.",
    }
)


@dataclass(frozen=True, slots=True)
class HomeCommandTool:
    """The home command tool under its name, and the tools that the model is given."""

    name: str
    model_tools: tuple[ToolSpec, ...]
    "The home command tool first, then all tools that do not belong to the home."


def home_tool(tools: Sequence[ToolSpec]) -> HomeCommandTool | None:
    """Returns the tool that replaces the home's tools; None if none of `tools` is the home's."""
    others = tuple(tool for tool in tools if not _is_home_tool(tool))
    ours = [tool for tool in tools if _is_home_tool(tool)]
    if not ours:
        return None
    is_taken = any(tool.name == NAME for tool in others)
    name = OTHER_NAME if is_taken else NAME
    return HomeCommandTool(name, (_spec(name, names_of(ours).areas), *others))


def sentence_of(call: ToolCall) -> str:
    """Returns the sentence that the model wants carried out; empty if it gave none."""
    sentence = call.arguments.get("sentence")
    return sentence.strip() if isinstance(sentence, str) else ""


def messages_for_model(
    messages: Sequence[Message],
    name: str,
    is_home_call: Callable[[ToolCall], bool],
    sentence: Callable[[ToolCall], str | None],
) -> list[Message]:
    """Returns the conversation with calls of the home's tools rewritten as calls of the one tool.

    name: name of that one tool.
    is_home_call: True for a call of one of the home's tools.
    sentence: returns the model's sentence that led to a call; None if it was the user's own.
    """
    prompt: list[Message] = []
    user_text, last = "", None
    hidden: set[str] = set()
    for message in messages:
        if message.role == "user":
            user_text, last = message.text, None
        if message.role == "tool" and message.call_id in hidden:
            continue
        kept: list[ToolCall] = []
        for call in message.tool_calls:
            if not is_home_call(call):
                kept.append(call)
                continue
            command = sentence(call) or user_text
            # One sentence may lead to several calls: only the first call and its result are shown.
            if command == last:
                hidden.add(call.call_id)
                continue
            last = command
            kept.append(ToolCall(call.call_id, name, {"sentence": command}))
        if message.tool_calls and not kept and not message.text:
            continue
        prompt.append(replace(message, tool_calls=tuple(kept)) if message.tool_calls else message)
    return prompt


def _is_home_tool(tool: ToolSpec) -> bool:
    """Returns True for a tool of the home, whose calls the templates make.

    Tools of MCP servers (they have a `fallback_name`) and of clients belong to the model, whatever
    their name is.
    """
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
