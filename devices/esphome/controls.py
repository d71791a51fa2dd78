"""Settings of a connected satellite: volume, mute, wake words, and its other switches and choices.

What it has, it lists when it is connected; what they are, it says after that and at each change.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import (
    EntityInfo,
    EntityState,
    MediaPlayerCommand,
    MediaPlayerEntityState,
    MediaPlayerInfo,
    SelectInfo,
    SelectState,
    SwitchInfo,
    SwitchState,
    VoiceAssistantConfigurationResponse,
)

from core.errors import Conflict, RequestError
from devices.fleet.presence import (
    ControlChanges,
    DeviceControls,
    DeviceSelect,
    DeviceSwitch,
    DeviceWakeWord,
)
from devices.registry.sanitize import sanitize_line

MICROPHONE_MUTE = "mute"
"""Object id of the switch that turns the microphone off. Stock firmware and linux-voice-assistant
both have it; their media player mutes the loudspeaker."""

MAX_SETTINGS = 16
"Most switches, and most choices, that are shown. Stock satellites have at most four of each."

MAX_OPTIONS = 32
"Most options of a choice, and most wake words, that are shown."

ASK_LIMIT_S = 5.0
"Longest wait for a satellite's wake words."

InfoT = TypeVar("InfoT", SwitchInfo, SelectInfo)


class SatelliteControls:
    """The settings of one connected satellite."""

    def __init__(
        self, client: APIClient, entities: Iterable[EntityInfo], on_change: Callable[[], None]
    ) -> None:
        """on_change: called when a setting has changed."""
        self._client, self._on_change = client, on_change
        shown = [one for one in entities if not one.disabled_by_default]
        players = [one for one in shown if isinstance(one, MediaPlayerInfo)]
        self._player = players[0] if players else None
        switches = [one for one in shown if isinstance(one, SwitchInfo)]
        mutes = [one for one in switches if _id_of(one) == MICROPHONE_MUTE]
        self._mute = mutes[0] if mutes else None
        self._switches = _by_id(one for one in switches if one is not self._mute)
        self._selects = _by_id(one for one in shown if isinstance(one, SelectInfo))
        self._states: dict[int, EntityState] = {}
        self._wake_words = VoiceAssistantConfigurationResponse()

    def follow(self) -> None:
        """Follows the states until the connection ends. Raises APIConnectionError."""
        self._client.subscribe_states(self._note)

    def note_wake_words(self, found: VoiceAssistantConfigurationResponse) -> None:
        """Notes the wake words that the satellite knows."""
        self._wake_words = found
        self._on_change()

    def _note(self, state: EntityState) -> None:
        if self._states.get(state.key) != state:
            self._states[state.key] = state
            self._on_change()

    @property
    def present(self) -> DeviceControls:
        """Present settings, as far as the satellite has said them."""
        state = self._states.get(self._player.key) if self._player else None
        player = state if isinstance(state, MediaPlayerEntityState) else None
        found = self._wake_words
        return DeviceControls(
            volume=None if player is None else round(100 * player.volume),
            is_muted=None if player is None else player.muted,
            is_microphone_off=self._is_on(self._mute) if self._mute else None,
            wake_words=tuple(
                DeviceWakeWord(
                    id=one.id,
                    words=sanitize_line(one.wake_word),
                    is_active=one.id in found.active_wake_words,
                )
                for one in found.available_wake_words[:MAX_OPTIONS]
            ),
            max_wake_words=found.max_active_wake_words,
            switches=tuple(
                DeviceSwitch(id=name, name=sanitize_line(one.name), is_on=is_on)
                for name, one in self._switches.items()
                if (is_on := self._is_on(one)) is not None
            ),
            selects=tuple(
                DeviceSelect(
                    id=name,
                    name=sanitize_line(one.name),
                    options=tuple(one.options[:MAX_OPTIONS]),
                    choice=state.state,
                )
                for name, one in self._selects.items()
                if isinstance(state := self._states.get(one.key), SelectState)
                and not state.missing_state
            ),
        )

    def _is_on(self, switch: SwitchInfo) -> bool | None:
        state = self._states.get(switch.key)
        return state.state if isinstance(state, SwitchState) else None

    async def change(self, changes: ControlChanges) -> None:
        """Carries out changes; see `ControllableDevice.control`."""
        self._check(changes)
        try:
            self._send(changes)
            if changes.wake_words is not None:
                await self.choose_wake_words([*changes.wake_words])
        except APIConnectionError as error:
            raise Conflict("the satellite is gone", code="device_away") from error

    def set_volume(self, volume: int) -> None:
        """Sets the volume, 0 to 100, if it has one. Raises APIConnectionError."""
        if self._player is not None:
            self._client.media_player_command(self._player.key, volume=volume / 100)

    def stop_playing(self) -> None:
        """Stops an answer or announcement. Raises APIConnectionError."""
        if self._player is not None:
            self._client.media_player_command(
                self._player.key, command=MediaPlayerCommand.STOP, announcement=True
            )

    # Checks. Nothing is sent unless all of them pass.

    def _check(self, changes: ControlChanges) -> None:
        has_player_change = changes.volume is not None or changes.is_muted is not None
        if has_player_change and self._player is None:
            raise _missing("a loudspeaker that can be set (it has no media player)")
        if changes.is_microphone_off is not None and self._mute is None:
            raise _missing("a switch for its microphone")
        for name in changes.switches:
            if name not in self._switches:
                raise _unknown(f"switches.{name}", self._switches)
        for name, choice in changes.selects.items():
            if name not in self._selects:
                raise _unknown(f"selects.{name}", self._selects)
            if choice not in (options := self._selects[name].options):
                raise _unknown(f"selects.{name}", options)
        if changes.wake_words is not None:
            self._check_wake_words(changes.wake_words)

    def _check_wake_words(self, wanted: tuple[str, ...]) -> None:
        found = self._wake_words
        known = [one.id for one in found.available_wake_words]
        if not known:
            raise _missing("wake words that can be chosen")
        for one in wanted:
            if one not in known:
                raise _unknown("wake_words", known)
        if not 1 <= len(set(wanted)) <= max(1, found.max_active_wake_words):
            raise RequestError(
                f"wake_words: 1 to {max(1, found.max_active_wake_words)} can be active at once",
                code="invalid_value",
                param="wake_words",
            )

    def _send(self, changes: ControlChanges) -> None:
        client = self._client
        if changes.volume is not None:
            self.set_volume(changes.volume)
        if changes.is_muted is not None and self._player is not None:
            command = MediaPlayerCommand.MUTE if changes.is_muted else MediaPlayerCommand.UNMUTE
            client.media_player_command(self._player.key, command=command)
        if changes.is_microphone_off is not None and self._mute is not None:
            client.switch_command(self._mute.key, changes.is_microphone_off)
        for name, is_on in changes.switches.items():
            client.switch_command(self._switches[name].key, is_on)
        for name, choice in changes.selects.items():
            client.select_command(self._selects[name].key, choice)

    async def choose_wake_words(self, wanted: list[str]) -> None:
        """Activates wake words by their ids. There is no answer to that, so they are asked for
        again, which only the client that the satellite serves may do: it named them before. Raises
        APIConnectionError."""
        await self._client.set_voice_assistant_configuration(wanted)
        found = await self._client.get_voice_assistant_configuration(ASK_LIMIT_S)
        self.note_wake_words(found)


def _by_id(entities: Iterable[InfoT]) -> Mapping[str, InfoT]:
    return {_id_of(one): one for one in [*entities][:MAX_SETTINGS]}


def _id_of(entity: EntityInfo) -> str:
    """Returns its id; newer firmware sends only the name that it is made of."""
    return str(entity.object_id or entity.name.casefold().replace(" ", "_"))


def _missing(what: str) -> Conflict:
    return Conflict(f"the satellite does not have {what}", code="not_supported")


def _unknown(field: str, known: Iterable[str]) -> RequestError:
    names = ", ".join(sanitize_line(one) for one in known) or "none"
    message = f"{field}: the satellite does not have that; allowed: {names}"
    return RequestError(message, code="invalid_value", param=field)
