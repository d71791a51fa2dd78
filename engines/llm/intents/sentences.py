"""Selects the sentence templates of a language that a home can use."""

import re
from typing import Any

from engines.llm.intents.home_names import HomeNames
from engines.llm.intents.language import LanguageData, home_assistant_data, language_data

INTENTS_WITHOUT_TOOL = ("HassNevermind",)
"Intents of Home Assistant that need no tool, only an answer."
WILDCARDS = ("timer_name", "shopping_list_item")
"Lists of free text that our tools take. Templates with other free text (searches) are left out."
FREE_TEXT = {
    "message",
    "search_query",
    "zone",
    "timer_name",
    "timer_command",
    "shopping_list_item",
    "todo_list_item",
    "response",
}
"Names of all lists of free text in Home Assistant's data."

SAME_TARGETS = "SameTargets"
"Intent of an action for the devices of the last command. It has the slots `action` and `kind`."
SAME_ACTION = "SameAction"
"Intent of a sentence that names only devices. The last command is repeated for them."


def sentences(language: str, names: HomeNames) -> dict[str, Any]:
    """Returns the sentence templates that the home can use, Home Assistant's and ours, for hassil.

    language: ISO 639-1 code.
    """
    data = home_assistant_data(language)
    added = language_data(language)
    domains = {domain for domain, _ in names.devices}
    intents = {
        name: {"data": _usable_blocks(name, intent["data"], domains)}
        for name, intent in data["intents"].items()
        if name in names.tools or name in INTENTS_WITHOUT_TOOL
    }
    for name, blocks in added.intents.items():
        if name == SAME_ACTION:
            continue
        if name in names.tools or not name.startswith("Hass") or name in INTENTS_WITHOUT_TOOL:
            intents.setdefault(name, {"data": []})["data"] += [dict(block) for block in blocks]
    return _with_intents(intents, data, added)


def target_sentences(language: str) -> dict[str, Any]:
    """Returns the templates of SAME_ACTION for hassil: sentences that only name a device or room.

    They are matched after the commands, so that no name of a device hides a command.
    """
    added = language_data(language)
    blocks = [dict(block) for block in added.intents.get(SAME_ACTION, ())]
    return _with_intents({SAME_ACTION: {"data": blocks}}, home_assistant_data(language), added)


def _with_intents(
    intents: dict[str, Any], data: dict[str, Any], added: LanguageData
) -> dict[str, Any]:
    return {
        **data,
        "intents": intents,
        "lists": {**data.get("lists", {}), **added.lists},
        "expansion_rules": {**data.get("expansion_rules", {}), **added.rules},
    }


def _usable_blocks(
    intent: str, blocks: list[dict[str, Any]], domains: set[str]
) -> list[dict[str, Any]]:
    kept = []
    for block in blocks:
        context = dict(block.get("requires_context", {}))
        # The room of the device that listens is not known here. The tool decides which lights are
        # "the lights".
        context.pop("area", None)
        domain = context.get("domain") or block.get("slots", {}).get("domain")
        required = {domain} if isinstance(domain, str) else set(domain or ())
        if required and domains and not required & domains:
            continue  # the home has no such device
        if intent == "HassLightSet" and block.get("response") == "temperature":
            continue  # our tools cannot set the color temperature
        sentences = [text for text in block["sentences"] if _is_usable(intent, text)]
        if sentences:
            kept.append({**block, "sentences": sentences, "requires_context": context})
    return kept


def _is_usable(intent: str, sentence: str) -> bool:
    if "floor" in sentence or re.fullmatch(r"(\[?<\w+>\]? ?)?[{<]name[}>]", sentence):
        return False  # our homes have no floors, and a name alone is no command
    if "Timer" in intent and re.search(r"[{<]area[}>]", sentence):
        return False  # timers belong to a conversation, not to a room
    free_text = set(re.findall(r"\{(\w+)(?::\w+)?\}", sentence)) & FREE_TEXT
    return not free_text - set(WILDCARDS)
