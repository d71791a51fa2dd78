"""One connection to a device: its runs, its timers, and what a person or a program wants of it."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import (
    EntityInfo,
    VoiceAssistantConfigurationResponse,
    VoiceAssistantEventType,
    VoiceAssistantFeature,
    VoiceAssistantTimerEventType,
)

from core.conversation.ids import new_id
from core.conversation.items import MessageItem, TextPart
from core.errors import EarshotError
from core.ports import Clock, DeviceLocation, Metrics
from core.tasks import single_error
from devices.esphome.announcer import SatelliteAnnouncer
from devices.esphome.controls import ASK_LIMIT_S, SatelliteControls
from devices.esphome.conversation_run import ConversationRun, RunEnd
from devices.esphome.link import SatelliteAbilities
from devices.esphome.sounds import PATH, Sound, Sounds, choose_format
from devices.esphome.timer_changes import TimerChangeKind, timer_changes
from devices.esphome.udp_audio import UdpAudio, udp_audio
from devices.esphome.wake_words import SatelliteWakeWords
from devices.fleet.directory import Device
from devices.fleet.presence import (
    ControlChanges,
    DeviceActivity,
    DeviceControls,
    DeviceNotification,
    Presence,
)
from devices.fleet.wake_arbiter import WakeArbiter, plain_wake_word
from firmware_protocol.esphome.voice_run import RunEvent, VoiceRun
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.speech.file import SpeechFiles
from pipeline.tools.home import Home, TimerState

logger = logging.getLogger(__name__)

USE_WAKE_WORD = 2
"Flag of a start: the device wants the server to detect the wake word."

HELD_WAIT_S = 60.0
"Interval of attempts to take over a device that another client holds."

TIMER_EVENTS: Mapping[TimerChangeKind, VoiceAssistantTimerEventType] = {
    "started": VoiceAssistantTimerEventType.VOICE_ASSISTANT_TIMER_STARTED,
    "updated": VoiceAssistantTimerEventType.VOICE_ASSISTANT_TIMER_UPDATED,
    "cancelled": VoiceAssistantTimerEventType.VOICE_ASSISTANT_TIMER_CANCELLED,
    "finished": VoiceAssistantTimerEventType.VOICE_ASSISTANT_TIMER_FINISHED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EspHomeServices:
    """Services that every connection uses."""

    sessions: Sessions
    sounds: Sounds
    speech_files: SpeechFiles
    presence: Presence
    wake_arbiter: WakeArbiter
    clock: Clock
    metrics: Metrics
    home: Home
    "The home whose timers are shown on the devices."
    language: str
    "The server's language, for announcements on devices without one of their own."


class EspHomeConnection:
    """Serves one connected device; also its `ConnectedDevice`, and the `DeviceLink` of its runs.

    `run` serves until it is cancelled or the device is gone.
    """

    timing: Mapping[str, float] | None = None

    def __init__(
        self,
        client: APIClient,
        device: Device,
        abilities: SatelliteAbilities,
        services: EspHomeServices,
        entities: Iterable[EntityInfo],
        settings: Callable[[], SessionSettings],
        sounds_port: int,
        *,
        may_ask: bool = True,
    ) -> None:
        """entities: what the device lists. settings: returns those of a session. sounds_port: port
        of our HTTP server for devices. may_ask: False: it is not asked for its wake words."""
        self.asked_at: float | None = None
        "Monotonic seconds at which it was last asked for its wake words."
        self._may_ask = may_ask
        self._end_subscription: Callable[[], None] = lambda: None
        self._client, self._device, self._abilities = client, device, abilities
        self._controls = SatelliteControls(client, entities, services.presence.note_change)
        self._services, self._settings = services, settings
        self.wake_words = SatelliteWakeWords(services.wake_arbiter, device, self._can_start)
        self._format = choose_format(abilities.formats)
        self._has_api_audio = VoiceAssistantFeature.API_AUDIO in abilities.features
        self._peer = client.connected_address or client.address
        self._own_address = _own_address(self._peer, client.port)
        self._udp: UdpAudio | None = None
        "Port for the sound of old firmware; None: its sound comes over the API."
        host = f"[{self._own_address}]" if ":" in self._own_address else self._own_address
        self._base_url = f"http://{host}:{sounds_port}"
        self._current: ConversationRun | None = None
        self._requested: ConversationRun | None = None
        self._is_requested = asyncio.Event()
        self._voice_runs: dict[ConversationRun, tuple[VoiceRun, Sound]] = {}
        self._announcer = SatelliteAnnouncer(
            client, device, abilities, services, settings, self._format, self._url_of
        )
        self._asked: asyncio.Future[str | None] | None = None
        "Gets the words that answer the question of a program; None: none is asked."
        self._tasks: asyncio.TaskGroup | None = None
        self._closed = asyncio.Event()

    # `ConnectedDevice`, used by presence.

    @property
    def activity(self) -> DeviceActivity:
        if self._current is not None:
            return self._current.activity
        return "speaking" if self._announcer.is_announcing else "idle"

    async def notify(self, notice: DeviceNotification) -> bool:
        """Speaks the text after a chime. A URL is not passed on. Returns False while the device is
        busy: an announcement would cut in, and end its run."""
        is_possible = self._abilities.can_announce and bool(notice.text.strip())
        if self._is_busy or not is_possible or self._tasks is None:
            return False
        return await self._announcer.announce(self._tasks, notice)

    @property
    def can_be_started(self) -> bool:
        """See `StartableDevice`."""
        return self._abilities.can_be_started

    @property
    def controls(self) -> DeviceControls:
        """See `ControllableDevice`."""
        return self._controls.present

    async def control(self, changes: ControlChanges) -> None:
        """See `ControllableDevice`."""
        await self._controls.change(changes)

    async def set_volume(self, volume: int) -> None:
        """See `AdjustableDevice`."""
        with suppress(APIConnectionError):
            self._controls.set_volume(volume)

    async def stop(self) -> None:
        """See `StoppableDevice`."""
        if self._announcer.close_sound():
            self.stop_playing()
        await self._handle_stop(is_abort=True)

    @property
    def can_be_asked(self) -> bool:
        """See `AskableDevice`. Old firmware and raw speakers do not listen by themselves."""
        return self._abilities.can_announce and self._abilities.can_be_started

    async def ask(self, question: str) -> str | None:
        """See `AskableDevice`. The device starts a run when it has played the question. If nobody
        speaks then, the button starts another one."""
        if not self.can_be_asked or self._asked is not None:
            return None
        self._asked = words = asyncio.get_running_loop().create_future()
        try:
            notice = DeviceNotification(text=question, starts_conversation=True)
            return await words if await self.notify(notice) else None
        finally:
            self._asked = None

    async def restart(self) -> bool:
        return False

    async def update(self, firmware: str) -> bool:
        return False

    async def close(self) -> None:
        self._closed.set()

    # The connection.

    async def run(self) -> None:
        """Serves the device. Raises APIConnectionError when it does not take the subscription,
        OSError when no port can be opened for its sound."""
        async with AsyncExitStack() as stack:
            if not self._has_api_audio:
                port = udp_audio(self._peer, self._own_address, self._take_audio)
                self._udp = await stack.enter_async_context(port)
            await self._run()

    async def _run(self) -> None:
        self._subscribe()
        try:
            with single_error():
                async with asyncio.TaskGroup() as self._tasks:
                    work = [self._tasks.create_task(self._serve_runs(), name="esphome-runs")]
                    if self._abilities.can_announce and self._may_ask:
                        check = self._check_subscription()
                        work.append(self._tasks.create_task(check, name="esphome-check"))
                    if VoiceAssistantFeature.TIMERS in self._abilities.features:
                        timers = self._tasks.create_task(self._show_timers(), name="esphome-timers")
                        work.append(timers)
                    self._controls.follow()
                    if (volume := self._device.profile.volume) is not None:
                        # without one it keeps what its buttons set
                        self._controls.set_volume(volume)
                    await self._closed.wait()
                    for task in work:
                        task.cancel()
        finally:
            self._tasks = None
            if self._asked is not None and not self._asked.done():
                self._asked.set_result(None)
            self._unsubscribe()

    def _subscribe(self) -> None:
        self._end_subscription = self._client.subscribe_voice_assistant(
            handle_start=self._handle_start,
            handle_stop=self._handle_stop,
            handle_audio=self._handle_audio if self._has_api_audio else None,
            handle_announcement_finished=self._handle_played,
        )

    def _unsubscribe(self) -> None:
        with suppress(APIConnectionError):  # it is gone already
            self._end_subscription()

    async def _check_subscription(self) -> None:
        """Finds out whether the device took the subscription, which it does not say, and sets the
        wake word of its profile."""
        while True:
            self.asked_at = self._services.clock.now()
            try:
                found = await self._client.get_voice_assistant_configuration(ASK_LIMIT_S)
                if found.available_wake_words:
                    self._controls.note_wake_words(found)
                    await self._choose_wake_word(found)
                    return
            except APIConnectionError:  # it does not know the request, or is gone
                return
            logger.warning(
                "! esphome device %s names no wake words; if it has some, another client (Home"
                " Assistant?) holds it: disable the device there",
                self._device.id,
            )
            self._services.presence.note_error(self._device.id, "held_by_another_client")
            if self._abilities.crashes_when_asked:
                return
            await asyncio.sleep(HELD_WAIT_S)
            if self._current is None:
                self._unsubscribe()
                self._subscribe()

    async def _choose_wake_word(self, found: VoiceAssistantConfigurationResponse) -> None:
        """Activates the wake word of the device's profile, by its id or its words."""
        known = {one.id: one.wake_word for one in found.available_wake_words}
        names, wanted = ", ".join(known.values()), plain_wake_word(self._device.profile.wake_word)
        logger.info("= esphome device %s knows the wake words %s", self._device.id, names)
        self.wake_words.set_active(known.get(one, one) for one in found.active_wake_words)
        if not wanted:
            return
        forms = {one: {plain_wake_word(one), plain_wake_word(known[one])} for one in known}
        chosen = next((one for one in known if wanted in forms[one]), "")
        if not chosen:
            logger.warning(
                "! esphome device %s does not know the wake word of its profile; allowed: %s",
                self._device.id,
                names,
            )
        elif chosen not in found.active_wake_words:
            await self._controls.choose_wake_words([chosen])
            self.wake_words.set_active([known[chosen]])

    async def _show_timers(self) -> None:
        """Shows the timers that were set on the device. A device that was away may have restarted,
        so at first it is told all of them."""
        shown: dict[str, TimerState] = {}
        async with aclosing(self._services.home.watch_timers()) as states:
            async for timers in states:
                present = [one for one in timers if one.conversation_id == self._device.id]
                for change in timer_changes(shown, present):
                    timer = change.timer
                    with suppress(APIConnectionError):  # the connection's end ends this task
                        self._client.send_voice_assistant_timer_event(
                            TIMER_EVENTS[change.kind],
                            timer.id,
                            timer.name,
                            round(timer.duration_s),
                            round(timer.remaining_s),
                            timer.state == "running",
                        )
                shown = {timer.id: timer for timer in present}

    # Handlers of the library. An exception here is only logged, and the device waits for ever.

    async def _handle_start(
        self, conversation_id: str, flags: int, audio_settings: object, phrase: str | None
    ) -> int | None:
        """Begins a run. Returns 0: audio comes over the API; a port: it comes there. None:
        refused."""
        if flags & USE_WAKE_WORD:
            logger.warning(
                "! esphome device %s wants the server to detect its wake word; set its"
                ' "Wake word engine location" to "On device"',
                self._device.id,
            )
            self._services.presence.note_error(self._device.id, "wake_word_on_server")
            return None
        if self._requested is not None:
            self._drop(self._requested)
        if self._current is not None:
            self._current.replace()
        if phrase and self._asked is not None and not self._asked.done():
            self._asked.set_result(None)  # the user wants the assistant instead
        self._requested = self._new_run()
        if phrase:  # not after a button, nor in a conversation that continues
            self.wake_words.report(self._requested, phrase)
        self._is_requested.set()
        self._services.presence.note_change()
        return 0 if self._udp is None else self._udp.port

    async def _handle_stop(self, is_abort: bool) -> None:
        run = self._requested or self._current
        if run is None:
            return
        if is_abort:
            run.abort()
        else:
            run.end_of_audio()

    async def _handle_audio(self, data: bytes, data2: bytes | None) -> None:
        self._take_audio(data)

    def _take_audio(self, data: bytes) -> None:
        run = self._requested or self._current
        if run is not None:
            run.audio(data)
            self.wake_words.hear(run, data)

    async def _handle_played(self, report: object) -> None:
        if self._current is not None:
            self._current.played()

    # `DeviceLink`, used by runs.

    def send(self, events: Iterable[RunEvent]) -> None:
        for one in events:
            logger.debug("> esphome %s: %s", self._device.id, one.event.name)
            with suppress(APIConnectionError):  # the connection's end ends the run
                self._client.send_voice_assistant_event(
                    VoiceAssistantEventType(one.event), dict(one.data) or None
                )

    def send_sound(self, pcm: bytes) -> None:
        if self._udp is not None:
            self._udp.send(pcm)
            return
        with suppress(APIConnectionError):
            self._client.send_voice_assistant_audio(pcm)

    def stop_playing(self) -> None:
        with suppress(APIConnectionError):
            self._controls.stop_playing()

    # Runs.

    @property
    def _is_busy(self) -> bool:
        is_talking = self._current is not None or self._requested is not None
        return is_talking or self._announcer.is_announcing

    def _can_start(self) -> bool:
        return not self._is_busy

    def _new_run(self) -> ConversationRun:
        sound = self._services.sounds.open(self._format.kind)
        voice_run = VoiceRun(
            self._url_of(sound),
            self._device.id,
            has_raw_speaker=self._abilities.has_raw_speaker,
        )
        run = ConversationRun(
            self,
            voice_run,
            sound,
            self._format,
            self._services.clock,
            self._services.presence.note_change,
            has_raw_speaker=self._abilities.has_raw_speaker,
            question=self._asked if self._asked and not self._asked.done() else None,
        )
        self._voice_runs[run] = (voice_run, sound)
        return run

    async def _serve_runs(self) -> None:
        while True:
            await self._is_requested.wait()
            self._is_requested.clear()
            run, self._requested = self._requested, None
            if run is None:
                continue
            self._current = run
            try:
                end = await self.wake_words.arbitrate(run) or await self._converse(run)
            except EarshotError as error:
                run.refuse(error.code, str(error))
                self.wake_words.give_up()
                end = "failed"
            finally:
                self._drop(run)
                self._current = None
            self._note_end(run, end)
            self._services.presence.note_change()

    async def _converse(self, run: ConversationRun) -> RunEnd:
        services, device = self._services, self._device
        settings = self._settings()
        async with services.sessions.open(
            settings if run.question is None else replace(settings, answers=False),
            paced_by="client",
            conversation_id=device.id,
            place=DeviceLocation(device.area, device.id),
            door="esphome",
        ) as session:
            question = self._announcer.take_question()
            if question and run.question is None:
                session.add_item(MessageItem(new_id("item"), "assistant", (TextPart(question),)))
            try:
                end = await run.run(session)
            except BaseException:
                self.send(self._voice_runs[run][0].fail("server_error", "The server failed"))
                raise
        async for event in session.events:
            run.note_last_event(event)
        return end

    def _note_end(self, run: ConversationRun, end: RunEnd) -> None:
        services, device = self._services, self._device
        services.metrics.count("earshot_esphome_runs", outcome=end)
        if run.error_code:
            services.presence.note_error(device.id, run.error_code)
        if run.marks is not None:
            self.timing = run.marks
            services.presence.note_turn(device.id)
        if run.late_text.strip() and self._tasks is not None:
            notice = DeviceNotification(text=run.late_text)
            self._tasks.create_task(self._announce_late(notice), name="esphome-late")

    async def _announce_late(self, notice: DeviceNotification) -> None:
        await self.notify(notice)

    def _drop(self, run: ConversationRun) -> None:
        _, sound = self._voice_runs.pop(run)
        self.wake_words.forget(run)
        self._services.sounds.drop(sound)

    def _url_of(self, sound: Sound) -> str:
        return f"{self._base_url}{PATH}/{sound.name}"


def _own_address(peer: str, port: int) -> str:
    """Returns this machine's address as the device at this address reaches it."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, port))  # sends nothing, but chooses the route
        return str(probe.getsockname()[0])
