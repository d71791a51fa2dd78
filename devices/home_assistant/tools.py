"""Home Assistant as a tool: it gets each sentence about the house as the user said it."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core.errors import EarshotError, RequestError
from core.ports import Clock, HomeDescription, ToolContext, ToolOutcome, ToolSpec
from devices.home_assistant.client import HomeAssistantClient
from devices.home_assistant.conversation import NOT_UNDERSTOOD, ConversationIds, ConversationResult
from devices.home_assistant.errors import HomeAssistantError, error_sentence
from devices.home_assistant.registries import HomeAssistantHouse
from devices.home_assistant.services import restoring_calls, service_calls
from engines.llm.intents import understand
from engines.llm.intents.home_names import UNDO
from pipeline.tools.guards import NO_GUARDS, Guards
from pipeline.tools.home import ChangeJournal, HomeEntity

# Adds the room to a sentence: "Turn on the lights", said in the kitchen, gets "in the kitchen".
#
# `conversation/process` takes no device, so Home Assistant cannot know where the user
# speaks. A sentence with the room added is used only if it is understood as the same command about
# that room: grammar differs too much to trust a pattern.

TextParser = Callable[[str], tuple[str, Mapping[str, Any]] | None]
"Function from a sentence to its intent and slots; None when no sentence template fits."

PLACE_SLOTS = ("area", "name", "floor", "preferred_area_id")
"Slots that name a place: a command with one of them needs no room."

ROOM_INTENTS = (
    "HassClimateGetTemperature",
    "HassClimateSetTemperature",
    "HassFanSetSpeed",
    "HassLightSet",
    "HassSetPosition",
    "HassTurnOff",
    "HassTurnOn",
)
"""Intents that are meant for the room of the speaker when they name no place. Music and questions
are for the whole house."""

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "en": ("{text} in the {area}", "{text} in {area}"),
    "de": (
        "{text} im {area}",
        "{text} in der {area}",
        "{first} im {area} {last}",
        "{first} in der {area} {last}",
        "{first} in {area} {last}",
        "{text} in {area}",
    ),
    "fr": (
        "{text} de la {area}",
        "{text} du {area}",
        "{text} dans la {area}",
        "{text} dans le {area}",
        "{text} de l'{area}",
    ),
    "es": (
        "{text} de la {area}",
        "{text} del {area}",
        "{text} en la {area}",
        "{text} en el {area}",
    ),
}
"`first` stands for all words but the last, `last` for the last one: German verbs end a sentence."


RESTORABLE_INTENTS = (
    "HassClimateSetTemperature",
    "HassLightSet",
    "HassMediaPause",
    "HassMediaUnpause",
    "HassSetPosition",
    "HassTurnOff",
    "HassTurnOn",
)
"""Intents that can be undone: the page shows the entities that they change, so Earshot knows their
former states."""

RESTORABLE_KINDS = ("cover", "fan", "light", "media_player", "switch")
"Kinds of device that these intents may have changed; locks are never touched."


QUESTIONS = ("HassGetState", "HassClimateGetTemperature")
"Intents that change nothing."


def wants_room(intent: str, slots: Mapping[str, object]) -> bool:
    """Returns True if a command is meant for the room in which it is said."""
    if slots.get("everywhere") or any(slots.get(key) for key in PLACE_SLOTS):
        return False
    return intent in ROOM_INTENTS


def with_room(text: str, area: str, language: str, understand: TextParser) -> str | None:
    """Returns the sentence with the room in it; None when no variant is understood as the same
    command."""
    wanted = understand(text)
    if wanted is None:
        return None
    for sentence in _variants(text.strip(" .!?"), area, language):
        found = understand(sentence)
        if found is None or found[0] != wanted[0]:
            continue
        if str(found[1].get("area", "")).casefold() == area.casefold() and not found[1].get("name"):
            return sentence
    return None


def _variants(text: str, area: str, language: str) -> Iterator[str]:
    first, _, last = text.rpartition(" ")
    for pattern in PATTERNS.get(language.partition("-")[0], ()):
        yield pattern.format(text=text, area=area, first=first, last=last)


logger = logging.getLogger(__name__)

NAME = "home_assistant"

MAX_TEXT_CHARS = 1000
"Limit of a sentence: commands are shorter."

MAX_LISTED_CHARS = 1500
"Limit of the names in the tool's description; other names are found by asking."

SLACK_S = 2.0
"""Extra time limit of the tool, in seconds: `converse` times out first, and its error has a
sentence for the user."""

MISUNDERSTANDINGS = (NOT_UNDERSTOOD, "no_valid_targets")
"Errors of Home Assistant after which Earshot's own understanding of the sentence is tried."

SentenceParser = Callable[[str, str, Sequence[ToolSpec]], tuple[str, Mapping[str, Any]] | None]
"Function from text, language and tools to intent and slots."


def by_templates(
    text: str, language: str, tools: Sequence[ToolSpec]
) -> tuple[str, Mapping[str, Any]] | None:
    """Parses a sentence as the embedded language model does; the default `SentenceParser`."""
    found = understand(text, language, tools)
    return None if found is None else (found.intent, found.slots)


class HomeAssistantTools:
    """Tool provider with one tool, which takes a sentence for Home Assistant.

    parse: the parser that is used to add the room to a sentence.
    """

    def __init__(
        self,
        home: HomeAssistantClient,
        clock: Clock,
        *,
        parse: SentenceParser = by_templates,
        guards: Guards = NO_GUARDS,
    ) -> None:
        self._home, self._clock, self._parse = home, clock, parse
        self._guards = guards
        self._conversation_ids = ConversationIds()
        self._changes = ChangeJournal()
        self._house: HomeAssistantHouse | None = None
        self._specs: Mapping[bool, tuple[ToolSpec, ...]] = {}

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns the tool, with the names in the house in its description."""
        if self._house != self._home.house:
            self._house = self._home.house
            timeout_s = self._home.settings.timeout_s + SLACK_S
            self._specs = {
                is_asking: (_spec(self._house, timeout_s, is_asking=is_asking),)
                for is_asking in (False, True)
            }
        return self._specs[
            self._conversation_ids.is_asking(context.conversation_id, self._clock.now())
        ]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        """Runs the tool. arguments: `text`, and from the embedded model also `intent`, `slots` and
        `is_follow_up`, which is True if the text alone does not name the devices.

        Errors of Home Assistant are returned as an outcome with a sentence for the user. Raises
        RequestError for arguments that are not valid.
        """
        text = arguments.get("text")
        if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_TEXT_CHARS:
            raise RequestError(
                f"text must be a sentence of at most {MAX_TEXT_CHARS} characters",
                code="invalid_arguments",
                param="text",
            )
        intent, slots = str(arguments.get("intent", "")), dict(arguments.get("slots") or {})
        is_follow_up = arguments.get("is_follow_up") is True
        before = self._home.states()
        try:
            if self._guards.devices:
                guarded = await self._guarded_call(text.strip(), intent, slots, context)
                if guarded is not None:
                    return self._with_undo_id(guarded, before, intent, slots)
            if intent == UNDO:
                return await self._undo(slots, context)
            outcome = await self._by_services(intent, slots, context) if is_follow_up else None
            outcome = outcome or await self._run(text.strip(), intent, slots, context)
            return self._with_undo_id(outcome, before, intent, slots)
        except HomeAssistantError as error:
            logger.warning("! home assistant: %s (%s)", error, error.code)
            return _error_outcome(error.code, context.language)
        except EarshotError as error:
            logger.warning("! home assistant: %s (%s)", error, error.code)
            return _error_outcome("house_failed", context.language)

    def _with_undo_id(
        self,
        outcome: ToolOutcome,
        before: Sequence[HomeEntity],
        intent: str,
        slots: Mapping[str, object],
    ) -> ToolOutcome:
        """Adds an id with which the change can be undone, if all former states are known."""
        changed = _changed_ids(outcome)
        known = [entity for entity in before if entity.config.id in changed]
        # A heater's mode is not known, its temperature is.
        kinds = ("climate",) if intent == "HassClimateSetTemperature" else RESTORABLE_KINDS
        restorable = [entity for entity in known if entity.config.kind in kinds]
        if (
            outcome.error
            or intent not in RESTORABLE_INTENTS
            or "color" in slots
            or not changed
            or len(restorable) != len(changed)
        ):
            return outcome
        return ToolOutcome({**outcome.data, "undo": self._changes.add(restorable)})

    async def _guarded_call(
        self, text: str, intent: str, slots: dict[str, object], context: ToolContext
    ) -> ToolOutcome | None:
        """Runs a call where some devices are guarded, or refuses it. Returns None for a call that
        may go its usual way.

        Home Assistant may understand a sentence in another way than Earshot. So a command without a
        guarded device is done by the services that Earshot chose itself, and whoever says a
        sentence that Earshot does not understand has to be allowed to use every guarded device.
        """
        if intent == UNDO:
            touched = {entity.config.id for entity in self._changes_before(slots)}
            return await self._guards.refuse_devices(touched, context)
        if not intent:  # the text comes from a language model
            specs = self.tools(context)
            found = await asyncio.to_thread(self._parse, text, context.language, specs)
            intent, slots = (found[0], dict(found[1])) if found is not None else ("", slots)
        area = self._home.house.area(context.place.area) if context.place.area else None
        if area is not None and wants_room(intent, slots):
            slots = {**slots, "area": area.spoken_name(context.place.area)}
        calls = service_calls(self._home.house, intent, slots)
        touched = {entity_id for call in calls for entity_id in call.data["entity_id"]}
        if calls and touched.isdisjoint(self._guards.devices):
            return await self._by_services(intent, slots, context)
        is_question = intent in QUESTIONS
        wanted = touched or (frozenset() if is_question else self._guards.devices)
        return await self._guards.refuse_devices(wanted, context)

    def _changes_before(self, slots: Mapping[str, object]) -> Sequence[HomeEntity]:
        changes = slots.get("changes")
        given = [str(change) for change in changes] if isinstance(changes, list | tuple) else []
        return self._changes.before(given) or ()

    async def _undo(self, slots: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        before = self._changes_before(slots)
        if not before:
            return ToolOutcome({}, error="cannot_undo")
        for call in restoring_calls(before):
            await self._home.call_service(call.domain, call.service, call.data)
        return self._targets({entity.config.id for entity in before})

    async def _run(
        self, text: str, intent: str, slots: dict[str, object], context: ToolContext
    ) -> ToolOutcome:
        area = self._home.house.area(context.place.area) if context.place.area else None
        if area is not None and not intent:  # the text comes from a language model
            specs = self.tools(context)
            found = await asyncio.to_thread(self._parse, text, context.language, specs)
            intent, slots = (found[0], dict(found[1])) if found is not None else ("", slots)
        if area is not None and wants_room(intent, slots):
            room = area.spoken_name(context.place.area)
            slots["area"] = room
            variant = await asyncio.to_thread(self._in_room, text, room, context)
            if variant is None:  # without the room it would act on the whole house, or on nothing
                return await self._by_services(intent, slots, context) or await self._converse(
                    text, context
                )
            text = variant
        outcome = await self._converse(text, context)
        if outcome.error in MISUNDERSTANDINGS and intent:
            return await self._by_services(intent, slots, context) or outcome
        return outcome

    def _in_room(self, text: str, area: str, context: ToolContext) -> str | None:
        language, tools = context.language, self.tools(context)
        return with_room(text, area, language, lambda said: self._parse(said, language, tools))

    async def _converse(self, text: str, context: ToolContext) -> ToolOutcome:
        now_s = self._clock.now()
        home_assistant_id = self._conversation_ids.id(context.conversation_id, now_s)
        answer = await self._home.converse(text, context.language, home_assistant_id)
        self._conversation_ids.record_answer(
            context.conversation_id,
            answer.conversation_id,
            self._clock.now(),
            is_asking=answer.continues,
        )
        return _outcome(answer, context.language)

    async def _by_services(
        self, intent: str, slots: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome | None:
        """Calls services directly. Returns None when no service fits."""
        calls = service_calls(self._home.house, intent, slots)
        if not calls:
            return None
        for call in calls:
            await self._home.call_service(call.domain, call.service, call.data)
        return self._targets({entity_id for call in calls for entity_id in call.data["entity_id"]})

    def _targets(self, ids: set[str]) -> ToolOutcome:
        """Returns the outcome that names these entities."""
        house = self._home.house
        areas = {area.id: area.names[0] for area in house.areas}
        targets = [
            {
                "id": entity.id,
                "name": entity.names[0],
                "area": entity.area,
                "area_name": areas.get(entity.area, ""),
                "kind": entity.domain,
                "device_class": entity.device_class,
                "state": "",
                "attributes": {},
            }
            for entity in house.entities
            if entity.id in ids
        ]
        return ToolOutcome({"targets": targets})


def _changed_ids(outcome: ToolOutcome) -> set[str]:
    """Returns the ids of the entities that a command changed."""
    targets = {target["id"] for target in outcome.data.get("targets", ())}
    return targets | set(outcome.data.get("entities", ()))


def _outcome(answer: ConversationResult, language: str) -> ToolOutcome:
    if answer.is_error:
        speech = answer.speech or error_sentence(answer.code, language)
        return ToolOutcome({"speech": speech}, error=answer.code)
    data: dict[str, object] = (
        {"speech": answer.speech} if answer.speech else {"result": answer.kind}
    )
    for key, touched in (("done", answer.succeeded), ("failed", answer.failed)):
        if touched:
            data[key] = [target.name for target in touched]
    if answer.succeeded and answer.kind == "action_done":
        data["entities"] = [target.id for target in answer.succeeded if target.kind == "entity"]
    if answer.continues:
        data["asks"] = True
    return ToolOutcome(data)


def _error_outcome(code: str, language: str) -> ToolOutcome:
    return ToolOutcome({"speech": error_sentence(code, language)}, error=code)


def _spec(house: HomeAssistantHouse, timeout_s: float, *, is_asking: bool) -> ToolSpec:
    description = (
        "Hands one sentence about the house to Home Assistant, which does it or answers: lights,"
        " switches, covers, heating, media, scenes, sensors. Say the device or area by its name."
    )
    listed = ", ".join(house.keywords(MAX_LISTED_CHARS))
    if len(listed) > MAX_LISTED_CHARS:
        listed = listed[:MAX_LISTED_CHARS].rpartition(", ")[0] + ", and others"
    text = {"type": "string", "description": "One command or question, as a person would say it"}
    return ToolSpec(
        NAME,
        f"{description} There are: {listed}." if listed else description,
        {
            "type": "object",
            "properties": {"text": text},
            "required": ["text"],
            "additionalProperties": False,
        },
        timeout_s=timeout_s,
        checks_arguments=True,
        house=HomeDescription(
            tuple(name for area in house.areas for name in area.names),
            tuple((entity.domain, name) for entity in house.entities for name in entity.names),
            is_asking,
        ),
    )
