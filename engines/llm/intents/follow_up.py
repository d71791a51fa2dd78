"""Completes sentences that refer to an earlier command: "turn them off", "and the bedroom?".

The earlier commands are read from the tool calls in the conversation's history. There is no other
state, so a session can reconnect, and sessions do not affect each other. Pure.
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
"Intent of a sentence that refers to an earlier command, when there is none that fits."

UNDO_FAILURES = ("NothingToUndo", "CannotUndo")
"Intents of `undo` without a change before it, and after a change that cannot be restored."

UNRESOLVED_INTENTS = (NO_REFERENCE, *UNDO_FAILURES)
"Intents of sentences that refer to nothing. They are answered without a tool."

MAX_PAST_TURNS = 5
"Most turns between a command and a reference to it. Later, people say the device's name again."

MAX_UNDO_TURNS = 20
"Most turns between a change and its undo."

TARGET_SLOTS = ("name", "area", "domain", "device_class", "everywhere")
"Slots that say which devices a command is for."

UNCLEAR_TARGET_ERRORS = ("ambiguous", "no_such_device", "no_such_area")
"Errors after which the user may answer with only a name or a room."

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
"Intent -> kind of device (domain), for intents that are about one kind only."

FOLLOW_UP_KINDS: Mapping[str, tuple[str, ...]] = {
    "climate": ("climate",),
    "switch": ("light", "switch", "fan", "climate", "media_player", "input_boolean", ""),
    "light": ("light",),
    "cover": ("cover",),
    "lock": ("lock",),
}
"""Slot `kind` of SAME_TARGETS -> kinds of device that the last command may have been for. "Turn it
off" must never unlock a door that was locked before. "" is for commands about several kinds."""

ACTIONS: Mapping[str, str] = {intent.lower(): intent for intent in HOUSE_INTENTS}
"Slot `action` of SAME_TARGETS -> intent. The grammar returns all slots in lower case."

QUERY_INTENTS = ("HassGetState", "HassClimateGetTemperature")
"Intents that change nothing."


@dataclass(frozen=True, slots=True)
class PastCommand:
    """A tool call of an earlier turn, with the facts in its result."""

    intent: str
    "Intent, or the name of a tool that has none."
    slots: Mapping[str, Any]
    text: str = ""
    "Sentence in a call of the house tool."
    error: str = ""
    "Error code in the result; empty: it succeeded."
    change: str = ""
    "Id for restoring the state before the call; empty: it cannot be restored."
    is_read_only: bool = False
    "True: the call changed nothing."


class CommandHistory:
    """The commands of the earlier turns of a conversation.

    messages: the conversation before the current sentence. tools: show which calls changed nothing.
    """

    def __init__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self._houses = {tool.name for tool in tools if tool.house is not None}
        self._read_only = {tool.name for tool in tools if tool.is_read_only}
        self.turns = self._commands_of_turns(messages)
        "Commands of each turn, the latest turn first; an empty list for a turn without commands."

    def _commands_of_turns(self, messages: Sequence[Message]) -> list[list[PastCommand]]:
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
                results[message.call_id] = decode_result(message.text)
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
        """Returns the commands for devices from the latest turn that has one."""
        for turn in self.turns[:MAX_PAST_TURNS]:
            home_commands = [
                command
                for command in turn
                if command.intent in HOUSE_INTENTS and command.intent != UNDO
            ]
            if home_commands:
                return home_commands
        return []

    def asks_for_target(self) -> bool:
        """Returns True if the last command failed because its device was not clear."""
        last = self.turns[0] if self.turns else []
        return bool(last) and last[-1].error in UNCLEAR_TARGET_ERRORS

    def undo(self, undo_command: IntentMatch) -> IntentMatch:
        """Returns the command that restores the state before the last change.

        Changes that were undone already are skipped. undo_command: the user's "undo".
        """
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
                # A part of the turn cannot be restored, and restoring only the rest would surprise.
                return replace(undo_command, intent="CannotUndo")
            changes = [command.change for command in done if command.change not in undone]
            if changes:
                return replace(undo_command, slots={"changes": changes})
        return replace(undo_command, intent="NothingToUndo")


def decode_result(text: str) -> Mapping[str, Any]:
    """Returns a tool's result, or the error `failed` if the text is not a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"error": "failed"}


def resolve_references(
    command: IntentMatch, history: CommandHistory, names: HomeNames
) -> IntentMatch | None:
    """Returns the command with its references to earlier commands filled in.

    Its intent is one of UNRESOLVED_INTENTS if a reference has nothing to refer to. None: the
    sentence consists of a device or room, but there was no question for one.
    """
    steps: list[IntentMatch] = []
    for step in command.steps:
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
    failed = [step for step in steps if step.intent in UNRESOLVED_INTENTS]
    first, *then = failed[:1] or steps  # a sentence is carried out as a whole or not at all
    return replace(first, then=tuple(then))


def _past(step: IntentMatch) -> PastCommand:
    return PastCommand(step.intent, step.slots, step.text)


def _unresolved(step: IntentMatch) -> IntentMatch:
    return IntentMatch(NO_REFERENCE, text=step.text)


def _with_targets(
    step: IntentMatch, past: Sequence[PastCommand], names: HomeNames
) -> list[IntentMatch]:
    """Returns the action of `step` for the devices of each past command, without duplicates."""
    own_slots = {key: value for key, value in step.slots.items() if key not in {"action", "kind"}}
    action = ACTIONS[step.slots["action"]]
    possible_kinds = FOLLOW_UP_KINDS[step.slots["kind"]]
    commands: list[IntentMatch] = []
    for command in past:
        kind = _kind(command, names)
        if kind not in possible_kinds or command.error in UNCLEAR_TARGET_ERRORS:
            continue
        targets = {key: command.slots[key] for key in TARGET_SLOTS if key in command.slots}
        if kind:
            targets["domain"] = kind
        new = IntentMatch(action, {**targets, **own_slots}, text=step.text, is_follow_up=True)
        if new not in commands:
            commands.append(new)
    if not commands and "brightness_step" in own_slots:
        # "Brighter" without a light before it means the lights that are on.
        commands = [IntentMatch(action, {"domain": "light", **own_slots}, text=step.text)]
    return commands or [_unresolved(step)]


def _repeated(step: IntentMatch, past: PastCommand, names: HomeNames) -> IntentMatch:
    """Returns the past command, applied to the devices that `step` names."""
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
    inherited: dict[str, object] = {}
    if "name" not in target:
        same_kind = "domain" not in target or target["domain"] == kind
        keys = ("domain", "device_class", "area") if same_kind else ("area",)
        inherited = {key: past.slots[key] for key in keys if key in past.slots}
        if "domain" not in past.slots and "name" in past.slots and kind:
            inherited["domain"] = kind
    slots = {**slots, **inherited, **target}
    return IntentMatch(past.intent, slots, text=step.text, is_follow_up=True)


def _kind(past: PastCommand, names: HomeNames) -> str:
    """Returns the kind of device (domain) of a command; empty if it was for several kinds."""
    domain = past.slots.get("domain") or INTENT_KINDS.get(past.intent)
    if isinstance(domain, str) and domain:
        return domain
    name = str(past.slots.get("name", "")).casefold()
    kinds = [kind for kind, device in names.devices if name and device.casefold() == name]
    return kinds[0] if kinds else ""
