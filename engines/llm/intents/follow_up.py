"""Completes sentences that refer to an earlier command: "turn them off", "and the bedroom?".

The earlier commands are read from the tool calls in the conversation's history, so nothing is
remembered here: a session that reconnects, and several sessions at once, need no care. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from core.ports import ToolSpec
from engines.base import Message
from engines.llm.intents.grammar import GUARDED_DOMAINS, IntentMatch
from engines.llm.intents.home_names import HOUSE_INTENTS, UNDO, HomeNames
from engines.llm.intents.sentences import SAME_ACTION, SAME_TARGETS

NO_REFERENCE = "NoReference"
"Intent of a sentence that refers to an earlier command that does not exist."

UNDO_FAILURES = ("NothingToUndo", "CannotUndo")
"Intents of `undo` without a change, and after a change whose former state is not known."

UNRESOLVED = (NO_REFERENCE, *UNDO_FAILURES)

MAX_PAST_TURNS = 5
"Turns that are searched for a command to refer to. After more, people say the name again."

MAX_UNDO_TURNS = 20
"Turns that are searched for a change to take back."

TARGET_SLOTS = ("name", "area", "domain", "device_class", "everywhere")
"Slots that say which devices a command is for."

UNCLEAR_TARGET_ERRORS = ("ambiguous", "no_such_device", "no_such_area")
"Errors after which the user may answer with a name only."

INTENT_KINDS: Mapping[str, str] = {
    "HassClimateGetTemperature": "climate",
    "HassClimateSetTemperature": "climate",
    "HassFanSetSpeed": "fan",
    "HassLightSet": "light",
    "HassMediaNext": "media_player",
    "HassMediaPause": "media_player",
    "HassMediaPrevious": "media_player",
    "HassMediaUnpause": "media_player",
    "HassSetPosition": "cover",
    "HassSetVolume": "media_player",
    "HassSetVolumeRelative": "media_player",
}
"Kind of device of commands that do not name one."

FOLLOW_UP_KINDS: Mapping[str, tuple[str, ...]] = {
    "climate": ("climate",),
    "switch": ("light", "switch", "fan", "climate", "media_player", "input_boolean", ""),
    "light": ("light",),
    "cover": ("cover",),
    "lock": ("lock",),
}
"""Slot `kind` of SAME_TARGETS -> kinds that the last command may have been for. "Turn it off" must
never unlock a door that was locked before; "" stands for everything in a room or the home."""

ACTIONS: Mapping[str, str] = {intent.lower(): intent for intent in HOUSE_INTENTS}
"Slot `action` of SAME_TARGETS, in lower case as the grammar returns all slots, -> intent."

QUERY_INTENTS = ("HassGetState", "HassClimateGetTemperature")
"Intents that change nothing."


@dataclass(frozen=True, slots=True)
class PastCommand:
    """A tool call of an earlier turn, with what its result says."""

    intent: str
    "Intent, or the name of a tool that has none."
    slots: Mapping[str, Any]
    text: str = ""
    "Sentence, if it was given to the house tool."
    error: str = ""
    change: str = ""
    "Id under which the home keeps the former state; empty: there is none."
    is_read_only: bool = False


class CommandHistory:
    """The commands of the earlier turns of a conversation, the latest turn first."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self._houses = {tool.name for tool in tools if tool.house is not None}
        self._read_only = {tool.name for tool in tools if tool.is_read_only}
        self.turns = self._turns(messages)

    def _turns(self, messages: Sequence[Message]) -> list[list[PastCommand]]:
        """Returns the commands of each turn in their order; empty lists for turns without one."""
        turns: list[list[PastCommand]] = []
        turn: list[PastCommand] = []
        results: dict[str, Mapping[str, object]] = {}
        for message in reversed(messages):
            if message.role == "user":
                turns.append(turn)
                turn = []
                if len(turns) == MAX_UNDO_TURNS:
                    break
            elif message.role == "tool":
                results[message.call_id] = decoded_result(message.text)
            elif message.tool_calls:
                calls = [
                    self._command(call.name, call.arguments, results.get(call.call_id, {}))
                    for call in message.tool_calls
                ]
                turn = [*calls, *turn]
        return turns

    def _command(
        self, name: str, arguments: Mapping[str, object], result: Mapping[str, object]
    ) -> PastCommand:
        intent, slots, text = name, arguments, ""
        if name in self._houses:
            intent, text = str(arguments.get("intent", "")), str(arguments.get("text", ""))
            given = arguments.get("slots")
            slots = given if isinstance(given, Mapping) else {}
        change = result.get("undo")
        return PastCommand(
            intent,
            slots,
            text,
            str(result.get("error", "")),
            change if isinstance(change, str) else "",
            name in self._read_only or intent in QUERY_INTENTS,
        )

    def last_home_commands(self) -> list[PastCommand]:
        """Returns the commands for devices of the latest turn that has any."""
        for turn in self.turns[:MAX_PAST_TURNS]:
            found = [
                command
                for command in turn
                if command.intent in HOUSE_INTENTS and command.intent != UNDO
            ]
            if found:
                return found
        return []

    def asks_for_target(self) -> bool:
        """Returns True if the last answer was that it is not clear which device is meant."""
        last = self.turns[0] if self.turns else []
        return bool(last) and last[-1].error in UNCLEAR_TARGET_ERRORS

    def undo(self, found: IntentMatch) -> IntentMatch:
        """Returns the command that takes back the last change that was not taken back yet."""
        undone: set[str] = set()
        for turn in self.turns:
            undone.update(
                change
                for command in turn
                if command.intent == UNDO and not command.error
                for change in command.slots.get("changes", ())
            )
            done = [
                command
                for command in turn
                if command.intent != UNDO and not command.error and not command.is_read_only
            ]
            if any(not command.change for command in done):
                # Part of it cannot be restored. Restoring the rest would leave a mixture.
                return replace(found, intent="CannotUndo")
            changes = [command.change for command in done if command.change not in undone]
            if changes:
                return replace(found, slots={"changes": changes})
        return replace(found, intent="NothingToUndo")


def decoded_result(text: str) -> Mapping[str, Any]:
    """Returns a tool's result, or an error if it is not a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"error": "failed"}


def completed(found: IntentMatch, history: CommandHistory, names: HomeNames) -> IntentMatch | None:
    """Returns the command with what it refers to filled in.

    Its intent is one of UNRESOLVED if there is nothing that it can refer to. None: the sentence
    only names a device or room, and nobody asked for one.
    """
    steps: list[IntentMatch] = []
    for step in found.steps:
        alone = replace(step, then=())
        if step.intent == SAME_TARGETS:
            past = [_past(earlier) for earlier in steps] or history.last_home_commands()
            steps += _with_targets(alone, past, names)
        elif step.intent == SAME_ACTION:
            past = [_past(earlier) for earlier in steps]
            if not past and "also" not in step.slots and not history.asks_for_target():
                return None
            past = past or history.last_home_commands()
            steps.append(_repeated(alone, past[-1], names) if past else _unresolved(alone))
        else:
            steps.append(history.undo(alone) if step.intent == UNDO else alone)
    failed = [step for step in steps if step.intent in UNRESOLVED]
    first, *then = failed[:1] or steps  # a sentence is carried out as a whole or not at all
    return replace(first, then=tuple(then))


def _past(step: IntentMatch) -> PastCommand:
    return PastCommand(step.intent, step.slots, step.text)


def _unresolved(step: IntentMatch) -> IntentMatch:
    return IntentMatch(NO_REFERENCE, text=step.text)


def _with_targets(
    step: IntentMatch, past: Sequence[PastCommand], names: HomeNames
) -> list[IntentMatch]:
    """Returns the action of `step` for the devices of each past command, each of them once."""
    own = {key: value for key, value in step.slots.items() if key not in {"action", "kind"}}
    action = ACTIONS[step.slots["action"]]
    wanted = FOLLOW_UP_KINDS[step.slots["kind"]]
    found: list[IntentMatch] = []
    for command in past:
        kind = _kind(command, names)
        if kind not in wanted or command.error in UNCLEAR_TARGET_ERRORS:
            continue
        targets = {key: command.slots[key] for key in TARGET_SLOTS if key in command.slots}
        if kind:
            targets["domain"] = kind
        new = IntentMatch(action, {**targets, **own}, text=step.text, is_follow_up=True)
        if new not in found:
            found.append(new)
    if not found and "brightness_step" in own:
        # "Brighter" without a light before it means the lights that are on.
        found = [IntentMatch(action, {"domain": "light", **own}, text=step.text)]
    return found or [_unresolved(step)]


def _repeated(step: IntentMatch, past: PastCommand, names: HomeNames) -> IntentMatch:
    """Returns the past command for the devices that `step` names."""
    kind = _kind(past, names)
    target = {key: step.slots[key] for key in TARGET_SLOTS if key in step.slots}
    if (kind, target.get("name")) in {(domain, name.casefold()) for domain, name in names.devices}:
        target["domain"] = kind  # a door and its lock may have one name
    new_kind = target.get("domain", kind)
    if past.intent not in HOUSE_INTENTS or (
        new_kind != kind and not {new_kind, kind}.isdisjoint(GUARDED_DOMAINS)
    ):
        return _unresolved(step)  # "turn off the lamp and the front door" must open nothing
    slots = {key: value for key, value in past.slots.items() if key not in TARGET_SLOTS}
    kept: dict[str, object] = {}
    if "name" not in target:
        same_kind = "domain" not in target or target["domain"] == kind
        inherited = ("domain", "device_class") if same_kind else ()
        kept = {key: past.slots[key] for key in (*inherited, "area") if key in past.slots}
        if "domain" not in past.slots and "name" in past.slots and kind:
            kept["domain"] = kind
    return IntentMatch(past.intent, {**slots, **kept, **target}, text=step.text, is_follow_up=True)


def _kind(past: PastCommand, names: HomeNames) -> str:
    """Returns the kind of device that a command was for; empty if it was for several kinds."""
    domain = past.slots.get("domain") or INTENT_KINDS.get(past.intent)
    if isinstance(domain, str) and domain:
        return domain
    name = str(past.slots.get("name", "")).casefold()
    kinds = [kind for kind, own in names.devices if name and own.casefold() == name]
    return kinds[0] if kinds else ""
