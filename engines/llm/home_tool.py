"""One tool that replaces all tools of the home. Its argument is a sentence, as a user would say it.

The tools of a home with forty devices are 28 kB of JSON: too much for small models, and most of the
cost of a request. The engine `intents` turns the sentence into calls of those tools. Pure.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.ports import ToolSpec
from engines.base import Message, ToolCall
from engines.llm.intents.home_names import INTENT_PREFIX, names_of

NAME = "home"
OTHER_NAME = "earshot_home"
"Name used instead when another tool is already called `home`."

MAX_AREAS_CHARS = 400
"""Longest list of area names in the description, in characters. A longer list is cut: the model
writes "the kitchen" even if that name is missing."""

NOT_UNDERSTOOD = json.dumps(
    {
        "error": "not_understood",
        "message": "Say it as one short command or question with the names of device and room, "
        "as in: turn on the kitchen lights. If it is not about the home, answer without a tool.",
    }
)
"Result that the model gets for a sentence that no template matches, as JSON."


@dataclass(frozen=True, slots=True)
class HomeCommandTool:
    """The home command tool's name, and the tools that the model gets."""

    name: str
    model_tools: tuple[ToolSpec, ...]
    "The home command tool first, then all tools that do not belong to the home."


def home_tool(tools: Sequence[ToolSpec]) -> HomeCommandTool | None:
    """Returns the tool that replaces the home's tools; None if `tools` has no tool of the home."""
    others = tuple(tool for tool in tools if not _is_home_tool(tool))
    home_tools = [tool for tool in tools if _is_home_tool(tool)]
    if not home_tools:
        return None
    is_name_taken = any(tool.name == NAME for tool in others)
    name = OTHER_NAME if is_name_taken else NAME
    return HomeCommandTool(name, (_spec(name, names_of(home_tools).areas), *others))


def sentence_of(call: ToolCall) -> str:
    """Returns the sentence in the model's call; empty if the call has none."""
    sentence = call.arguments.get("sentence")
    return sentence.strip() if isinstance(sentence, str) else ""


def messages_for_model(
    messages: Sequence[Message],
    name: str,
    is_home_call: Callable[[ToolCall], bool],
    sentence: Callable[[ToolCall], str | None],
) -> list[Message]:
    """Returns the conversation with calls of the home's tools rewritten as calls of the one tool.

    So the model sees only calls of the tool that it has, the user's own commands included.

    name: name of the one tool.
    is_home_call: returns True for a call of one of the home's tools.
    sentence: returns the model's sentence that led to a call; None if the user's sentence did.
    """
    prompt: list[Message] = []
    user_text, last_command = "", None
    hidden_calls: set[str] = set()
    for message in messages:
        if message.role == "user":
            user_text, last_command = message.text, None
        if message.role == "tool" and message.call_id in hidden_calls:
            continue
        kept: list[ToolCall] = []
        for call in message.tool_calls:
            if not is_home_call(call):
                kept.append(call)
                continue
            command = sentence(call) or user_text
            # One sentence may lead to several calls: only the first call and its result are shown.
            if command == last_command:
                hidden_calls.add(call.call_id)
                continue
            last_command = command
            kept.append(ToolCall(call.call_id, name, {"sentence": command}))
        if message.tool_calls and not kept and not message.text:
            continue
        prompt.append(replace(message, tool_calls=tuple(kept)) if message.tool_calls else message)
    return prompt


def _is_home_tool(tool: ToolSpec) -> bool:
    """Returns True for a tool that the templates call.

    Tools of MCP servers (they have a `fallback_name`) and of clients stay with the model, even if
    their name begins with INTENT_PREFIX.
    """
    if tool.is_clients:
        return False
    is_built_in = tool.name.startswith(INTENT_PREFIX) and not tool.fallback_name
    return is_built_in or tool.house is not None


def _spec(name: str, areas: Sequence[str]) -> ToolSpec:
    areas_text = ", ".join(areas)
    if len(areas_text) > MAX_AREAS_CHARS:
        areas_text = areas_text[:MAX_AREAS_CHARS].rpartition(", ")[0]
    rooms = f" Rooms: {areas_text}." if areas_text else ""
    return ToolSpec(
        name,
        "Does or answers one thing in the home: lights, covers, locks, switches, heating, fans, "
        "music, timers, the shopping list, the time and the date. Takes a short sentence in the "
        f"user's language with the names of device and room.{rooms}",
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
