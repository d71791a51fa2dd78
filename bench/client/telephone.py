"""Telephone systems for measurements and tests: one call through Twilio's or Asterisk's protocol.

They know the wire facts of their protocols only. Twilio's plays from a buffer, returns marks when
the sound before them is played, and returns all of them at once after `clear`.
"""

import asyncio
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID
from xml.etree import ElementTree as ET

import msgspec
from aiohttp import ClientResponse, ClientSession, ClientWebSocketResponse, WSMsgType

from bench.client.microphone import Microphone
from bench.client.realtime import CannotConnect, Json, OnSound, background
from core.audio import PTIME_MS, AudioFrame
from devices.telephone.audiosocket.framing import (
    AudioSocketDecoder,
    CallId,
    Dtmf,
    HangUp,
    Slin,
    encode_message,
)
from devices.telephone.twilio.signature import SIGNATURE_HEADER, sign
from media.codecs import g711
from media.pcm import from_bytes, to_bytes

TelephoneSystem = Literal["audiosocket", "twilio"]

CALL_UUID = UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
READ_BYTES = 4096


class TelephonePeer(ABC):
    """One call, by any protocol. `send_audio` and `read` must run while it lasts."""

    def __init__(self, on_sound: OnSound) -> None:
        self._clock = asyncio.get_running_loop().time
        self._on_sound = on_sound
        self._received_samples = 0
        self.microphone = Microphone(self._clock, g711.RATE_HZ)
        self.closed = asyncio.Event()
        "Set when the server has closed the connection."

    async def send_audio(self) -> None:
        """Sends the microphone's audio: a frame per 20 ms, without drift."""
        origin, tick = self._clock(), 0
        with suppress(ConnectionError):
            while not self.closed.is_set():
                await self.send_frame(self.microphone.pull())
                tick += 1
                await asyncio.sleep(origin + tick * PTIME_MS / 1000 - self._clock())

    @abstractmethod
    async def send_frame(self, frame: AudioFrame) -> None:
        """Sends 20 ms of sound, 8 kHz."""

    @abstractmethod
    async def read(self) -> None:
        """Reads messages until the server has closed the connection."""

    @abstractmethod
    async def hang_up(self) -> None:
        """Ends the call."""

    def _receive(self, pcm: Any) -> None:
        self._on_sound(AudioFrame(pcm, g711.RATE_HZ, self._received_samples), self._clock())
        self._received_samples += len(pcm)


class AudioSocketPeer(TelephonePeer):
    """A call of Asterisk."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_sound: OnSound
    ) -> None:
        super().__init__(on_sound)
        self._reader, self._writer = reader, writer

    def write_id(self) -> None:
        """Writes the first message of a call."""
        self._writer.write(encode_message(CallId(CALL_UUID)))

    async def send_frame(self, frame: AudioFrame) -> None:
        self._writer.write(encode_message(Slin(to_bytes(frame.pcm))))

    async def press(self, digit: str) -> None:
        self._writer.write(encode_message(Dtmf(digit)))

    async def read(self) -> None:
        decoder = AudioSocketDecoder()
        with suppress(ConnectionError):
            while data := await self._reader.read(READ_BYTES):
                for message in decoder.receive_data(data):
                    if isinstance(message, Slin):
                        self._receive(from_bytes(message.pcm))
        self.closed.set()

    async def hang_up(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_message(HangUp()))
            self._writer.close()


@dataclass(frozen=True, slots=True)
class TwilioAccount:
    """An account at Twilio with its number."""

    auth_token: str
    url: str
    "Address of the server for Twilio, without a slash at its end: https."
    caller: str = "+493012345"
    call_sid: str = "CA0123456789abcdef0123456789abcdef"


class TwilioPeer(TelephonePeer):
    """A call of Twilio."""

    def __init__(self, account: TwilioAccount, on_sound: OnSound) -> None:
        super().__init__(on_sound)
        self._account, self.stream_sid = account, "MZ0123456789abcdef0123456789abcdef"
        self._ws: ClientWebSocketResponse | None = None
        self._sequence = 0
        self._ends_at = 0.0
        "Time at which all sound in the buffer is played."
        self._marks: dict[str, asyncio.TimerHandle] = {}
        "Marks that come back when the sound before them is played."
        self._outgoing: asyncio.Queue[Json] = asyncio.Queue(1000)
        self.cleared_at: list[float] = []
        self.cleared = asyncio.Event()
        "Set by the first `clear`."
        self.returned_marks: list[str] = []

    # Requests.

    async def ask(self, http: ClientSession, **fields: str) -> ClientResponse:
        """Sends the webhook's request. `http` has the server's real address as its base."""
        form = {
            "AccountSid": "AC0123456789abcdef0123456789abcdef",
            "CallSid": self._account.call_sid,
            "CallStatus": "ringing",
            "From": self._account.caller,
            "To": "+15550100",
            **fields,
        }
        path = "/telephone/twilio/call"
        return await http.post(path, data=form, headers=self._signed(path, "https", form))

    async def connect(self, http: ClientSession, twiml: str, **start: Any) -> None:
        """Opens the stream of the TwiML. `start`: fields of `start` that differ. Raises
        WSServerHandshakeError."""
        stream = ET.fromstring(twiml).find("./Connect/Stream")  # noqa: S314
        if stream is None:
            raise CannotConnect(f"the server answered {twiml}")
        path = "/" + stream.attrib["url"].split("/", 3)[3]
        self._ws = await http.ws_connect(path, headers=self._signed(path, "wss", {}))
        parameters = {one.attrib["name"]: one.attrib["value"] for one in stream}
        await self.send({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        content = {
            "streamSid": self.stream_sid,
            "accountSid": "AC0123456789abcdef0123456789abcdef",
            "callSid": self._account.call_sid,
            "tracks": ["inbound"],
            "customParameters": parameters,
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        }
        await self.send_event("start", content | start)

    def _signed(self, path: str, scheme: str, form: dict[str, str]) -> dict[str, str]:
        base = f"{scheme}://{self._account.url.partition('://')[2]}"
        signature = sign(self._account.auth_token, base + path, [*form.items()])
        return {SIGNATURE_HEADER: signature}

    # The stream.

    async def send(self, message: Json) -> None:
        if self._ws is not None:
            await self._ws.send_str(msgspec.json.encode(message).decode())

    async def send_event(self, event: str, content: Json) -> None:
        self._sequence += 1
        await self.send(
            {
                "event": event,
                "sequenceNumber": str(self._sequence),
                "streamSid": self.stream_sid,
                event: content,
            }
        )

    async def send_frame(self, frame: AudioFrame) -> None:
        content = {
            "track": "inbound",
            "chunk": str(frame.start // len(frame.pcm) + 1),
            "timestamp": str(frame.start // 8),
            "payload": b64encode(g711.encode(frame.pcm, "mu")).decode(),
        }
        await self.send_event("media", content)

    async def press(self, digit: str) -> None:
        await self.send_event("dtmf", {"track": "inbound_track", "digit": digit})

    async def hang_up(self) -> None:
        if self._ws is not None and not self._ws.closed:
            with suppress(ConnectionError):
                await self.send_event("stop", {"callSid": self._account.call_sid})
            await self._ws.close()

    async def read(self) -> None:
        async with background(self._return_marks()):
            assert self._ws is not None
            async for message in self._ws:
                if message.type is WSMsgType.TEXT:
                    self._handle(msgspec.json.decode(message.data))
        self.closed.set()

    async def _return_marks(self) -> None:
        with suppress(ConnectionError):
            while True:
                await self.send_event("mark", await self._outgoing.get())

    def _handle(self, message: Json) -> None:
        assert message["streamSid"] == self.stream_sid
        match message["event"]:
            case "media":
                pcm = g711.decode(b64decode(message["media"]["payload"]), "mu")
                self._ends_at = max(self._ends_at, self._clock()) + len(pcm) / g711.RATE_HZ
                self._receive(pcm)
            case "mark":
                name = message["mark"]["name"]
                loop = asyncio.get_running_loop()
                self._marks[name] = loop.call_at(self._ends_at, self._return, name)
            case "clear":
                self.cleared_at.append(self._clock())
                self.cleared.set()
                self._ends_at = 0.0
                for name, timer in [*self._marks.items()]:
                    timer.cancel()
                    self._return(name)

    def _return(self, name: str) -> None:
        del self._marks[name]
        self.returned_marks.append(name)
        self._outgoing.put_nowait({"name": name})


@asynccontextmanager
async def call_by_twilio(
    http: ClientSession, account: TwilioAccount, on_sound: OnSound
) -> AsyncGenerator[TwilioPeer, None]:
    """Calls while the body runs. `http` has the server's real address as its base. Raises
    CannotConnect."""
    peer = TwilioPeer(account, on_sound)
    async with await peer.ask(http) as answer:
        if not answer.ok:
            raise CannotConnect(f"the webhook answered {answer.status}: {await answer.text()}")
        twiml = await answer.text()
    await peer.connect(http, twiml)
    async with background(peer.read(), peer.send_audio()):
        yield peer
        await peer.hang_up()


@asynccontextmanager
async def call_by_audiosocket(
    host: str, port: int, on_sound: OnSound
) -> AsyncGenerator[AudioSocketPeer, None]:
    """Calls while the body runs. Raises OSError."""
    peer = AudioSocketPeer(*await asyncio.open_connection(host, port), on_sound)
    peer.write_id()
    async with background(peer.read(), peer.send_audio()):
        yield peer
        await peer.hang_up()
