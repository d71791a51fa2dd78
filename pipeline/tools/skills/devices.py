"""Devices of the demo home as tools, named after Home Assistant's built-in intents."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.guards import NO_GUARDS, Guards
from pipeline.tools.home import ChangeJournal, Home, HomeEntity
from pipeline.tools.skills.arguments import (
    SkillHandler,
    ToolError,
    read_number,
    read_text,
    require_number,
    run_tool,
)
from pipeline.tools.skills.device_specs import COLORS, MAX_TARGET_C, MIN_TARGET_C, device_specs
from pipeline.tools.skills.targets import describe_entity, find_targets

SWITCHABLE = ("light", "switch", "fan", "cover", "climate", "media_player", "lock")
"Kinds that can be turned on and off by name, area, domain or device class."
MAX_LANGUAGES = 8
"Most languages whose specifications are cached. A household speaks fewer."
VOLUME_STEP = 10
"Change of volume in percent: one audible step."
LIGHT_STEP = 25
"Change of brightness in percent: one step that everybody sees."
MIN_LIT = 5
"Least brightness in percent: `dim` never turns a light off."
MAX_UNDONE = 50
"Most changes that one call undoes. One sentence makes at most four."
EVERYTHING = ("light", "switch", "fan", "media_player")
"""Kinds that "everything" includes: no doors and locks, and no heating, which may protect from
frost."""
QUERIES = ("HassGetState", "HassClimateGetTemperature")
"Tools that change nothing."
ON = {"cover": "open", "climate": "heat", "media_player": "playing", "lock": "locked"}
OFF = {"cover": "closed", "lock": "unlocked"}
"States that turning on and off lead to, for kinds that are not `on` and `off`."


class HomeTools:
    """A ToolProvider that controls the devices of the demo home.

    All handlers are synchronous, so cancelling leaves no call half done.
    """

    def __init__(
        self, home: Home, guards: Guards = NO_GUARDS, changes: ChangeJournal | None = None
    ) -> None:
        """`guards`: refuse changes of devices. `changes`: earlier changes; None: there are none."""
        self._home, self._guards = home, guards
        self._changes = ChangeJournal() if changes is None else changes
        self._specs: dict[str, tuple[ToolSpec, ...]] = {}
        self._handlers: Mapping[str, SkillHandler] = {
            "HassTurnOn": self._turn_on,
            "HassTurnOff": self._turn_off,
            "HassLightSet": self._light_set,
            "HassSetPosition": self._set_position,
            "HassFanSetSpeed": self._fan_speed,
            "HassClimateSetTemperature": self._set_temperature,
            "HassClimateGetTemperature": self._get_temperature,
            "HassGetState": self._get_state,
            "HassMediaPause": self._media_pause,
            "HassMediaUnpause": self._media_unpause,
            "HassMediaNext": lambda arguments, context: self._skip(arguments, context, 1),
            "HassMediaPrevious": lambda arguments, context: self._skip(arguments, context, -1),
            "HassSetVolume": self._set_volume,
            "HassSetVolumeRelative": self._step_volume,
            "HassUndo": self._undo,
        }

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        language = context.language
        if language not in self._specs:
            while len(self._specs) >= MAX_LANGUAGES:
                del self._specs[next(iter(self._specs))]
            self._specs[language] = device_specs(self._home, language)
        return self._specs[language]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        if self._guards.devices and name not in QUERIES:
            allowed: frozenset[str] = frozenset()
            # Again after each wait: what plays or is on meanwhile decides what a call changes.
            while (touched := self._guarded(name, arguments, context)) - allowed:
                if refusal := await self._guards.refuse_devices(touched, context):
                    return refusal
                allowed = touched
        before = self._home.entities()
        outcome = run_tool(self._handlers, name, arguments, context)
        targets = _target_ids(outcome)
        if outcome.error or not targets or name in (*QUERIES, "HassUndo"):
            return outcome
        # Devices that already had the state are kept, too: undoing changes nothing for them.
        change = self._changes.add([entity for entity in before if entity.config.id in targets])
        return ToolOutcome({**outcome.data, "undo": change})

    def _guarded(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> frozenset[str]:
        """Returns the ids of the guarded devices that a call would change, by running it on a copy
        of the home."""
        trial = HomeTools(self._home.copy(), changes=self._changes)
        outcome = run_tool(trial._handlers, name, arguments, context)
        return _target_ids(outcome) & self._guards.devices

    def _targets(
        self, arguments: Mapping[str, object], context: ToolContext, *kinds: str
    ) -> list[HomeEntity]:
        return find_targets(self._home, arguments, context.language, kinds)

    def _turn_on(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        changed = [
            self._switch(entity, ON.get(entity.config.kind, "on"))
            for entity in self._switchable(arguments, context)
        ]
        return self._done(changed, context)

    def _turn_off(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        changed = [
            self._switch(entity, OFF.get(entity.config.kind, "off"))
            for entity in self._switchable(arguments, context)
        ]
        return self._done(changed, context)

    def _switchable(
        self, arguments: Mapping[str, object], context: ToolContext
    ) -> Sequence[HomeEntity]:
        is_specific = any(arguments.get(key) for key in ("name", "domain", "device_class"))
        kinds = SWITCHABLE if is_specific else EVERYTHING
        return self._targets(arguments, context, *kinds)

    def _undo(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        changes = arguments.get("changes")
        if not isinstance(changes, list | tuple) or not 0 < len(changes) <= MAX_UNDONE:
            raise ToolError(
                f"changes must be 1 to {MAX_UNDONE} values `undo` of results", param="changes"
            )
        before = self._changes.before([str(change) for change in changes])
        if before is None:
            raise ToolError("the state before this change is not known", code="cannot_undo")
        present = {entity.config.id for entity in self._home.entities()}
        restored = [
            self._home.update(entity.config.id, entity.state, **entity.attributes)
            for entity in before
            if entity.config.id in present
        ]
        return self._done(restored, context)

    def _switch(self, entity: HomeEntity, state: str) -> HomeEntity:
        if entity.config.kind == "cover":
            return self._home.update(
                entity.config.id, state, position=100 if state == "open" else 0
            )
        return self._home.update(entity.config.id, state)

    def _light_set(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        brightness = read_number(arguments, "brightness", 0, 100)
        color = read_text(arguments, "color")
        step = read_text(arguments, "brightness_step")
        if step:
            return self._step_light(step, arguments, context)
        if brightness is None and not color:
            raise ToolError("brightness or color is required", param="brightness")
        if color and color not in COLORS:
            raise ToolError(f"color must be one of {', '.join(COLORS)}", param="color")
        changes: dict[str, int | float | str] = {"color": color} if color else {}
        if brightness:
            changes["brightness"] = round(brightness)
        state = "off" if brightness == 0 else "on"
        changed = [
            self._home.update(entity.config.id, state, **changes)
            for entity in self._targets(_lights_of(arguments), context, "light")
        ]
        return self._done(changed, context)

    def _step_light(
        self, step: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        """Makes lights brighter or darker; without a name and an area, only those that are on."""
        if step not in {"up", "down"}:
            raise ToolError("brightness_step must be up or down", param="brightness_step")
        lights = self._targets(_lights_of(arguments), context, "light")
        lit = [light for light in lights if light.state == "on"]
        has_place = any(arguments.get(key) for key in ("name", "area"))
        if not lit and (step == "down" or not has_place):
            raise ToolError("no light is on", code="no_light_on")
        change = LIGHT_STEP if step == "up" else -LIGHT_STEP
        changed = [
            self._home.update(
                light.config.id,
                "on",
                brightness=min(100, max(MIN_LIT, _brightness(light) + change)),
            )
            for light in lit or lights
        ]
        return self._done(changed, context)

    def _set_position(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        position = round(require_number(arguments, "position", 0, 100))
        state = "open" if position else "closed"
        changed = [
            self._home.update(entity.config.id, state, position=position)
            for entity in self._targets(arguments, context, "cover")
        ]
        return self._done(changed, context)

    def _fan_speed(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        speed = round(require_number(arguments, "percentage", 0, 100))
        changed = [
            self._home.update(entity.config.id, "on" if speed else "off", speed=speed)
            for entity in self._targets({"domain": "fan", **arguments}, context, "fan")
        ]
        return self._done(changed, context)

    def _set_temperature(
        self, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        degrees = require_number(arguments, "temperature", MIN_TARGET_C, MAX_TARGET_C)
        changed = [
            self._home.update(entity.config.id, "heat", target_temperature=degrees)
            for entity in self._targets({"domain": "climate", **arguments}, context, "climate")
        ]
        return self._done(changed, context)

    def _get_temperature(
        self, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        thermostats = self._targets({"domain": "climate", **arguments}, context, "climate")
        return self._done(thermostats, context)

    def _get_state(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        state = read_text(arguments, "state")
        area_only = {"domain": "light", **arguments} if set(arguments) == {"area"} else arguments
        matched: list[dict[str, object]] = []
        unmatched: list[dict[str, object]] = []
        for entity in self._queried(area_only, context):
            fits = not state or entity.state == state
            (matched if fits else unmatched).append(
                describe_entity(self._home, entity, context.language)
            )
        return ToolOutcome({"matched": matched, "unmatched": unmatched})

    def _queried(self, arguments: Mapping[str, object], context: ToolContext) -> list[HomeEntity]:
        try:
            return self._targets(arguments, context, *SWITCHABLE)
        except ToolError as error:
            if error.code != "ambiguous":
                raise
            # "Are any windows open?" asks about all windows. Only an action needs a single device.
            wanted = [arguments.get(key) for key in ("domain", "device_class")]
            return [
                entity
                for entity in self._home.entities()
                if wanted[0] in {None, "", entity.config.kind}
                and wanted[1] in {None, "", entity.config.device_class}
            ]

    def _media_pause(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        players = [player for player in self._players(arguments, context) if _plays(player)]
        if not players:
            raise ToolError("nothing is playing", code="nothing_playing")
        return self._done([self._home.update(p.config.id, "paused") for p in players], context)

    def _media_unpause(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        players = self._players(arguments, context, is_paused=True)
        return self._done([self._home.update(p.config.id, "playing") for p in players], context)

    def _skip(
        self, arguments: Mapping[str, object], context: ToolContext, step: int
    ) -> ToolOutcome:
        players = [player for player in self._players(arguments, context) if _plays(player)]
        if not players:
            raise ToolError("nothing is playing", code="nothing_playing")
        changed = [
            self._home.update(p.config.id, track=max(1, int(p.attributes["track"]) + step))
            for p in players
        ]
        return self._done(changed, context)

    def _set_volume(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        volume = round(require_number(arguments, "volume_level", 0, 100))
        players = self._players(arguments, context)
        return self._done([self._home.update(p.config.id, volume=volume) for p in players], context)

    def _step_volume(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        step = arguments.get("volume_step")
        if step in {"up", "down"}:
            change = VOLUME_STEP if step == "up" else -VOLUME_STEP
        else:
            change = round(require_number(arguments, "volume_step", -100, 100))
        changed = [
            self._home.update(
                p.config.id, volume=min(100, max(0, int(p.attributes["volume"]) + change))
            )
            for p in self._players(arguments, context)
        ]
        return self._done(changed, context)

    def _done(self, entities: Iterable[HomeEntity], context: ToolContext) -> ToolOutcome:
        described = [describe_entity(self._home, entity, context.language) for entity in entities]
        return ToolOutcome({"targets": described})

    def _players(
        self, arguments: Mapping[str, object], context: ToolContext, *, is_paused: bool = False
    ) -> list[HomeEntity]:
        """Returns the players that the arguments select.

        If none is named: those that play, or with `is_paused` those that are paused.
        """
        if any(arguments.get(key) for key in ("name", "area", "device_class")):
            return self._targets({**arguments, "domain": "media_player"}, context, "media_player")
        players = [e for e in self._home.entities() if e.config.kind == "media_player"]
        active = [player for player in players if _plays(player)]
        if active and not is_paused:
            return active
        if not players:
            raise ToolError("there is no player", code="no_such_device", domain="media_player")
        if not is_paused:
            raise ToolError("nothing is playing", code="nothing_playing")
        return self._targets({"domain": "media_player"}, context, "media_player")


def _target_ids(outcome: ToolOutcome) -> frozenset[str]:
    return frozenset(target["id"] for target in outcome.data.get("targets", ()))


def _brightness(light: HomeEntity) -> int:
    """Returns the visible brightness in percent: 0 for a light that is off."""
    return int(light.attributes["brightness"]) if light.state == "on" else 0


def _plays(player: HomeEntity) -> bool:
    return player.state == "playing"


def _lights_of(arguments: Mapping[str, object]) -> dict[str, Any]:
    return {"domain": "light", **arguments}
