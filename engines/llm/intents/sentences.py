"""Selects the sentence templates of a language that a home can use."""

import re
from typing import Any

from engines.llm.intents.home_names import HomeNames
from engines.llm.intents.language import LanguageData, home_assistant_data, language_data

INTENTS_WITHOUT_TOOL = ("HassNevermind",)
"Intents of Home Assistant that need no tool, only an answer."
WILDCARDS = ("timer_name", "shopping_list_item")
"Lists of free text that becomes a value. Templates with other free text (searches) are left out."
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
"Intent of a new command for the devices of the last one: slots `action`, `kind`, and its own."
SAME_ACTION = "SameAction"
"Intent of a sentence that names only new devices: the last command is repeated for them."


def sentences(language: str, names: HomeNames) -> dict[str, Any]:
    """Returns hassil's data: Home Assistant's templates that this home can use, and ours."""
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
    """Returns hassil's data for sentences that only name a device or room: SAME_ACTION.

    They are matched apart from the commands, so that no name of a device hides a command.
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
        needs = dict(block.get("requires_context", {}))
        # The room of the satellite that listens. We know none: the tool decides which lights
        # "the lights" are.
        needs.pop("area", None)
        domain = needs.get("domain") or block.get("slots", {}).get("domain")
        wanted = {domain} if isinstance(domain, str) else set(domain or ())
        if wanted and domains and not wanted & domains:
            continue
        if intent == "HassLightSet" and block.get("response") == "temperature":
            continue  # color temperature is no attribute of our lights
        sentences = [text for text in block["sentences"] if _is_usable(intent, text)]
        if sentences:
            kept.append({**block, "sentences": sentences, "requires_context": needs})
    return kept


def _is_usable(intent: str, sentence: str) -> bool:
    if "floor" in sentence or re.fullmatch(r"(\[?<\w+>\]? ?)?[{<]name[}>]", sentence):
        return False  # our homes have no floors, and a name alone is no command
    if "Timer" in intent and re.search(r"[{<]area[}>]", sentence):
        return False  # timers belong to a conversation, not to a room
    free = set(re.findall(r"\{(\w+)(?::\w+)?\}", sentence)) & FREE_TEXT
    return not free - set(WILDCARDS)
