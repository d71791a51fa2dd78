"""A simulated ESPHome satellite: the device's side of the API, plain or encrypted.

It knows only the protocol: frames, messages, and what stock firmware does with the events of a run,
its LEDs included. It needs the extra esphome. Tests and measurements use it.
"""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

import numpy as np
from aiohttp import ClientError, ClientSession, TCPConnector
from cryptography.exceptions import InvalidTag

api: Any = import_module("aioesphomeapi.api_pb2")
BY_NUMBER: Any = import_module("aioesphomeapi.core").MESSAGE_TYPE_TO_PROTO
NUMBER = {message: number for number, message in BY_NUMBER.items()}

VOICE, SPEAKER, API_AUDIO, TIMERS, ANNOUNCE, START = 1, 2, 4, 8, 16, 32
PLAYER = VOICE | API_AUDIO | TIMERS | ANNOUNCE | START
"Features of a satellite with a media player."
RAW = VOICE | SPEAKER | API_AUDIO
"Features of an old Atom Echo."

NAMES = {
    value.number: value.name.removeprefix("VOICE_ASSISTANT_")
    for value in api.VoiceAssistantEvent.DESCRIPTOR.values
}
PLAYER_KEY, MUTE_KEY, SOUND_KEY, SENSITIVITY_KEY = 7, 8, 9, 10
SENSITIVITIES = ("Slightly sensitive", "Moderately sensitive", "Very sensitive")

Led = Literal["idle", "waiting", "listening", "thinking", "replying", "error"]
"State of the LEDs, as the Voice Preview Edition has it. Timers and mute have lights of their own."

LEDS: Mapping[str, Led] = {
    "STT_START": "waiting",
    "STT_VAD_START": "listening",
    "STT_VAD_END": "thinking",
    "INTENT_START": "thinking",
    "TTS_STREAM_START": "replying",
}
"State of the LEDs after an event. Sound that it fetches is a reply from its first byte on."

QUIET_ERRORS = ("duplicate_wake_up_detected", "stt-no-text-recognized")
"Errors that the Voice Preview Edition does not show."
STOP, MUTE, UNMUTE = 2, 3, 4
"Commands of a media player."

CHUNK_SAMPLES = 1024
"Samples of a chunk of linux-voice-assistant; chips send 512."


@dataclass
class Satellite:
    """The device. Its fields say what it is and how it misbehaves."""

    features: int = PLAYER
    mac: str = "AA:BB:CC:DD:EE:FF"
    name: str = "Kitchen Satellite"
    key: str = ""
    "Its encryption key; empty: plain."
    refuses_encryption: bool = False
    can_encrypt: bool = False
    "True: it has no key yet, and takes one."
    has_zero_key: bool = False
    "True: a key is set over a connection that is encrypted with the key of zeros."
    refuses_key: bool = False
    formats: tuple[tuple[str, int], ...] = (("flac", 48_000),)
    wake_words: tuple[str, ...] = ("okay_nabu",)
    max_wake_words: int = 1
    settings: bool = True
    "False: it has no entities but its media player."
    is_held: bool = False
    "True: another client has its voice, so that a subscription is refused silently."
    firmware: str = "2026.8.0"
    plays_s: float | None = 0.0
    "Time it plays an answer; None: it never reports."
    continues: bool = False
    "True: it starts a run after an answer that is a question."
    obeys_stop: bool = True
    "False: its media player ignores a stop of announcements, as linux-voice-assistant's does."
    fetches: int = 1
    "Times it fetches each URL."
    breaks_off_after: int | None = None
    "Bytes after which it closes a fetch; None: it fetches all."
    is_successful: bool = True
    "False: it reports each answer as failed, as linux-voice-assistant does."
    streams: bool = True
    "False: it is older than June 2025, and plays an answer from TTS_END on only."
    greeting: bytes | None = None
    "Bytes that it answers every connection with, and nothing else; None: it speaks the protocol."
    listens_when_asked: bool = True
    "False: it starts no run after an announcement that wants one."

    volume: float = 0.5
    is_muted: bool = False
    on: dict[int, bool] = field(default_factory=lambda: {MUTE_KEY: False, SOUND_KEY: True})
    sensitivity: str = SENSITIVITIES[0]
    active_wake_words: list[str] = field(default_factory=list[str])
    leds: list[Led] = field(default_factory=lambda: list[Led](["idle"]))
    "States of the LEDs, the present one last."

    port: int = 0
    events: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    announcements: list[Any] = field(default_factory=list)
    timers: list[Any] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    fetched: list[tuple[str, bytes]] = field(default_factory=list)
    "Content type and bytes of each fetch."
    arrivals: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    "Arrival of each piece of the last sound: seconds of the loop's clock, and the bytes so far."
    raw_sound: bytes = b""
    responses: list[Any] = field(default_factory=list)
    "Answers to its requests to start."
    seen: list[Any] = field(default_factory=list)
    keys_over: list[str] = field(default_factory=list)
    "How each key came."
    connections: list["Connection"] = field(default_factory=list)
    subscriber: "Connection | None" = None
    waits_s: list[float] = field(default_factory=list)
    "Time from each request of a URL to its first sound. Firmware waits 2 s."
    first_sound_at: float | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    http: ClientSession = field(init=False, repr=False)
    udp: socket.socket | None = None
    "Its socket without API_AUDIO."

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        # each fetch is a connection of its own, as with firmware
        connector = TCPConnector(force_close=True)
        async with ClientSession(connector=connector) as self.http:
            try:
                yield
            finally:
                server.close()
                for connection in tuple(self.connections):
                    connection.cut()
                await self.until(lambda: not self.connections)
                if self.udp is not None:
                    self.udp.close()

    def show(self, led: Led) -> None:
        """Sets the LEDs."""
        if self.leds[-1] != led:
            self.leds.append(led)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self.connections.append(connection)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await connection.run()
        connection.cut()
        self.connections.remove(connection)
        if self.subscriber is connection:
            self.subscriber = None
        self.note_change()

    def note_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits until something holds, within the test's deadline."""
        while not condition():
            await self.changed.wait()

    async def subscribed(self) -> None:
        await self.until(lambda: self.subscriber)

    def send(self, message: Any) -> None:
        assert self.subscriber is not None
        self.subscriber.send(message)

    def start(self, phrase: str = "Okay Nabu", flags: int = 0) -> None:
        """Asks for a run, as after the wake word."""
        self.events.clear()
        self.send(
            api.VoiceAssistantRequest(
                start=True, conversation_id="", flags=flags, wake_word_phrase=phrase
            )
        )

    def stop(self) -> None:
        """The user stops the run with the button."""
        self.send(api.VoiceAssistantRequest(start=False))

    async def say(self, *parts: tuple[int, int]) -> None:
        """Sends levels, each for so many ms, in real time, as long as the microphone is open."""
        pcm = np.concatenate([np.full(16 * ms, level, "<i2") for level, ms in parts])
        for at in range(0, len(pcm), CHUNK_SAMPLES):
            if self.subscriber is None or self.names() & {"STT_VAD_END", "RUN_END"}:
                return
            self._send_sound(pcm[at : at + CHUNK_SAMPLES].tobytes())
            await asyncio.sleep(CHUNK_SAMPLES / 16_000)

    def _send_sound(self, data: bytes) -> None:
        """Sends sound over the API, or over UDP to the port that the server has named."""
        if self.features & API_AUDIO:
            self.send(api.VoiceAssistantAudio(data=data))
            return
        if self.udp is None:
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.udp.setblocking(False)
        self.udp.sendto(data, ("127.0.0.1", self.responses[-1].port))

    def received_over_udp(self) -> bytes:
        """Returns the sound that came over UDP since the last call."""
        sound = b""
        with suppress(BlockingIOError):
            while self.udp is not None:
                sound += self.udp.recv(4096)
        return sound

    async def turn(self, *words: int) -> list[str]:
        """Has a whole run with these words; returns the names of its events."""
        self.start()
        await self.until(self.names)
        parts = [part for word in words for part in ((word, 300), (0, 100))]
        await self.say((0, 200), *parts, (0, 3000))
        await self.until(lambda: "RUN_END" in self.names())
        return [name for name, _ in self.events]

    def names(self) -> set[str]:
        return {name for name, _ in self.events}

    def data(self, name: str) -> dict[str, str]:
        """Returns what came with an event."""
        return next(data for event, data in self.events if event == name)


class Connection:
    """One connection of a client."""

    def __init__(
        self, device: Satellite, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._device, self._reader, self._writer = device, reader, writer
        self._noise: Any = None
        self._playing: list[asyncio.Task[None]] = []
        self._is_running = self._starts = self._continues = self._has_states = False
        self._url = ""
        self._has_played = False
        self.is_dead = False
        "True: it answers nothing any more, as after a power cut."

    def cut(self) -> None:
        for task in self._playing:
            task.cancel()
        self._writer.close()

    def send(self, message: Any) -> None:
        if self.is_dead:
            return
        body, number = message.SerializeToString(), NUMBER[type(message)]
        if self._noise is not None:
            head = number.to_bytes(2, "big") + len(body).to_bytes(2, "big")
            self._send_frame(self._noise.encrypt(head + body))
        else:
            self._writer.write(b"\0" + _varint(len(body)) + _varint(number) + body)

    async def run(self) -> None:
        first = await self._reader.readexactly(1)
        if self._device.greeting is not None:
            self._writer.write(self._device.greeting)
            await self._reader.read()
            return
        if first == b"\x01":
            device = self._device
            if device.refuses_encryption or not (device.key or device.has_zero_key):
                return
            if not await self._shake_hands():
                return
            first = b""
        elif self._device.key:
            self._send_frame(b"\x01Bad indicator byte")
            await self._writer.drain()
            return
        while True:
            number, body = await self._read(first)
            first = b""
            message = BY_NUMBER[number].FromString(body)
            self._device.seen.append(message)
            if not self.is_dead and await self._handle(message):
                return
            self._device.note_change()

    async def _shake_hands(self) -> bool:
        from noise.connection import NoiseConnection

        await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(2), "big"))
        mac = self._device.mac.replace(":", "").lower().encode()
        self._send_frame(b"\x01satellite\0%b\0" % mac)
        hello = await self._read_frame()
        noise = NoiseConnection.from_name(b"Noise_NNpsk0_25519_ChaChaPoly_SHA256")
        noise.set_as_responder()
        noise.set_psks(base64.b64decode(self._device.key) or bytes(32))
        noise.set_prologue(b"NoiseAPIInit\0\0")
        noise.start_handshake()
        try:
            noise.read_message(hello[1:])
        except InvalidTag:  # another key
            self._send_frame(b"\x01Handshake MAC failure")
            await self._writer.drain()
            return False
        self._send_frame(b"\0" + noise.write_message())
        self._noise = noise
        return True

    def _send_frame(self, payload: bytes) -> None:
        self._writer.write(b"\x01" + len(payload).to_bytes(2, "big") + payload)

    async def _read_frame(self) -> bytes:
        head = await self._reader.readexactly(3)
        return await self._reader.readexactly(int.from_bytes(head[1:], "big"))

    async def _read(self, first: bytes) -> tuple[int, bytes]:
        if self._noise is not None:
            plain = self._noise.decrypt(await self._read_frame())
            return int.from_bytes(plain[:2], "big"), plain[4:]
        if not first:
            assert await self._reader.readexactly(1) == b"\0"
        size, number = await self._read_varint(), await self._read_varint()
        return number, await self._reader.readexactly(size)

    async def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    async def _handle(self, message: Any) -> bool:
        """Answers a message. Returns True after the last one."""
        device = self._device
        match type(message).__name__:
            case "HelloRequest":
                self.send(
                    api.HelloResponse(api_version_major=1, api_version_minor=14, name="satellite")
                )
            case "AuthenticationRequest":
                self.send(api.AuthenticationResponse())
            case "PingRequest":
                self.send(api.PingResponse())
            case "DisconnectRequest":
                self.send(api.DisconnectResponse())
                await self._writer.drain()
                return True
            case "DeviceInfoRequest":
                self.send(self._info())
            case "ListEntitiesRequest":
                self._list_entities()
            case "SubscribeVoiceAssistantRequest":
                if message.subscribe and not device.is_held and device.subscriber is None:
                    device.subscriber = self
                elif not message.subscribe and device.subscriber is self:
                    device.subscriber = None
            case "VoiceAssistantConfigurationRequest":
                self._configuration()
            case "NoiseEncryptionSetKeyRequest":
                if not device.refuses_key:
                    device.key = message.key.decode()
                    device.keys_over.append("plain" if self._noise is None else "noise")
                self.send(api.NoiseEncryptionSetKeyResponse(success=not device.refuses_key))
            case "VoiceAssistantSetConfiguration":
                device.commands.append(message)
                device.active_wake_words = list(message.active_wake_words)
            case "SubscribeStatesRequest":
                self._has_states = True
                self.send_states()
            case "VoiceAssistantResponse":
                device.responses.append(message)
            case "VoiceAssistantEventResponse":
                self._event(message)
            case "VoiceAssistantAnnounceRequest":
                device.announcements.append(message)
                self._starts = message.start_conversation
                self._play([message.preannounce_media_id, message.media_id])
            case "VoiceAssistantTimerEventResponse":
                device.timers.append(message)
            case "VoiceAssistantAudio":
                device.raw_sound += message.data
                self._note_first_sound()
            case "MediaPlayerCommandRequest":
                device.commands.append(message)
                self._command_player(message)
            case "SwitchCommandRequest":
                device.commands.append(message)
                device.on[message.key] = message.state
                self.send_states()
            case "SelectCommandRequest":
                device.commands.append(message)
                device.sensitivity = message.state
                self.send_states()
        return False

    def _command_player(self, message: Any) -> None:
        device = self._device
        if message.has_volume:
            device.volume = message.volume
        if message.has_command and message.command in (MUTE, UNMUTE):
            device.is_muted = message.command == MUTE
        if message.has_command and message.command == STOP and device.obeys_stop:
            for task in self._playing:
                if not task.done():
                    task.cancel()
                    self._end_playing()
        self.send_states()

    def send_states(self) -> None:
        """Sends the states of all entities, if the client wants them."""
        device = self._device
        if not self._has_states or device.features & SPEAKER:
            return
        self.send(
            api.MediaPlayerStateResponse(
                key=PLAYER_KEY, state=1, volume=device.volume, muted=device.is_muted
            )
        )
        if device.settings:
            for key, is_on in device.on.items():
                self.send(api.SwitchStateResponse(key=key, state=is_on))
            self.send(api.SelectStateResponse(key=SENSITIVITY_KEY, state=device.sensitivity))

    def _info(self) -> Any:
        return api.DeviceInfoResponse(
            name="satellite",
            friendly_name=self._device.name,
            mac_address=self._device.mac,
            esphome_version=self._device.firmware,
            project_name="Nabu Casa.Home Assistant Voice PE",
            project_version="26.6.0",
            voice_assistant_feature_flags=self._device.features,
            api_encryption_supported=self._device.can_encrypt or bool(self._device.key),
            api_encryption_provisionable=self._device.has_zero_key and not self._device.key,
        )

    def _list_entities(self) -> None:
        if not self._device.features & SPEAKER:
            player = api.ListEntitiesMediaPlayerResponse(
                object_id="media_player", key=PLAYER_KEY, name="Media Player"
            )
            for name, rate_hz in self._device.formats:
                player.supported_formats.add(
                    format=name, sample_rate=rate_hz, num_channels=1, purpose=1, sample_bytes=2
                )
            self.send(player)
            if self._device.settings:
                self._list_settings()
        self.send(api.ListEntitiesDoneResponse())

    def _list_settings(self) -> None:
        for key, name in ((MUTE_KEY, "Mute"), (SOUND_KEY, "Wake sound")):
            number = name.lower().replace(" ", "_")
            self.send(api.ListEntitiesSwitchResponse(object_id=number, key=key, name=name))
        self.send(
            api.ListEntitiesSelectResponse(
                object_id="wake_word_sensitivity",
                key=SENSITIVITY_KEY,
                name="Wake word sensitivity",
                options=SENSITIVITIES,
            )
        )

    def _configuration(self) -> None:
        found = api.VoiceAssistantConfigurationResponse()
        if self._device.subscriber is self:
            for one in self._device.wake_words:
                found.available_wake_words.add(id=one, wake_word=one.replace("_", " ").title())
            active = self._device.active_wake_words or self._device.wake_words[:1]
            found.active_wake_words.extend(active)
            found.max_active_wake_words = self._device.max_wake_words
        self.send(found)

    def _event(self, message: Any) -> None:
        device, name = self._device, NAMES[message.event_type]
        data = {one.name: one.value for one in message.data}
        device.events.append((name, data))
        streams = device.streams and bool(data.get("tts_start_streaming"))
        self._light(name, data)
        match name:
            case "INTENT_END":
                self._continues = data.get("continue_conversation") == "1"
            case "RUN_START":
                self._url = data.get("url", "")
                self._has_played = False
            case "INTENT_PROGRESS" | "TTS_END" if (
                (streams or name == "TTS_END")
                and not self._has_played
                and not device.features & SPEAKER
            ):
                self._has_played = True
                self._play([data.get("url") or self._url])

    def _light(self, name: str, data: dict[str, str]) -> None:
        """Shows an event on the LEDs, as the Voice Preview Edition does."""
        device = self._device
        if name == "ERROR":
            if data.get("code") not in QUIET_ERRORS:
                device.show("error")
        elif name == "RUN_END":
            self._is_running = False
            self._rest()
        elif name in LEDS:
            self._is_running = True
            device.show(LEDS[name])

    def _rest(self) -> None:
        """Switches the LEDs off when it neither runs nor plays."""
        if not self._is_running and all(task.done() for task in self._playing):
            self._device.show("idle")

    def _play(self, urls: list[str]) -> None:
        self._playing = [task for task in self._playing if not task.done()]
        self._playing.append(asyncio.create_task(self._play_all([one for one in urls if one])))

    async def _play_all(self, urls: list[str]) -> None:
        for url in urls:
            for _ in range(self._device.fetches):
                await self._fetch(url)
        if self._device.plays_s is not None:
            await asyncio.sleep(self._device.plays_s)
            self._end_playing()

    def _end_playing(self) -> None:
        """Reports that it has played, or stopped playing, and listens again if it shall."""
        device = self._device
        self.send(api.VoiceAssistantAnnounceFinished(success=device.is_successful))
        self._playing.clear()
        self._rest()
        is_asked = self._starts and device.listens_when_asked
        goes_on = self._continues and device.continues
        self._starts = self._continues = False
        if (is_asked or goes_on) and device.subscriber is self:
            device.start(phrase="")
        device.note_change()

    async def _fetch(self, url: str) -> None:
        data, asked_at = b"", asyncio.get_running_loop().time()
        with suppress(ClientError):
            async with self._device.http.get(url) as response:
                async for chunk in response.content.iter_any():
                    self._device.show("replying")
                    self._note_first_sound()
                    if not data:
                        waited_s = asyncio.get_running_loop().time() - asked_at
                        self._device.waits_s.append(waited_s)
                    data += chunk
                    now = asyncio.get_running_loop().time()
                    self._device.arrivals.append((now, len(data)))
                    limit = self._device.breaks_off_after
                    if limit is not None and len(data) >= limit:
                        response.close()
                        break
                self._device.fetched.append((response.headers["Content-Type"], data))
        self._device.note_change()

    def _note_first_sound(self) -> None:
        if self._device.first_sound_at is None:
            self._device.first_sound_at = asyncio.get_running_loop().time()


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])
