"""A board with stock firmware, as far as its protocol's sheet tells: it shares no code with the
server. It loses what a board would lose, and stops where a board would stop for ever.

Its user says words, which are tones. It plays in real time: its queue holds 40 packets, and each
lasts 60 ms.
"""

import asyncio
import json
import math
import random
import struct
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from av import AudioFrame, CodecContext, Packet

WORDS = {"one": 400, "two": 700, "three": 1100, "four": 1600}
"Hz."

PACKET_S = 0.06
QUEUE_PACKETS = 40
MAX_KEY_CHARS = 15
"Of a name in the board's flash: a longer one ends in a boot loop."

TOOLS = [
    {
        "name": "self.audio_speaker.set_volume",
        "description": "Sets the volume.",
        "inputSchema": {
            "type": "object",
            "properties": {"volume": {"type": "integer", "minimum": 0, "maximum": 100}},
            "required": ["volume"],
        },
    },
    {
        "name": "self.get_device_status",
        "description": "Tells about the device.",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {
        "name": "self.camera.take_photo",
        "description": "Takes a photo.",
        "inputSchema": {"type": "object", "properties": {"question": {"type": "string"}}},
    },
]


class Broken(Exception):
    """The server did something that crashes a board."""


def speech(*words: str, word_ms: int = 420, level: int = 9000) -> list[bytes]:
    """Returns packets of 60 ms at 16 kHz, as a board's encoder makes them."""
    rate, step = 16_000, 960
    parts = []
    for word in words:
        time_s = np.arange(rate * word_ms // 1000) / rate
        tone = level * np.sin(2 * math.pi * WORDS[word] * time_s)
        parts.append(tone.astype(np.int16))
        parts.append(np.zeros(rate * 60 // 1000, np.int16))
    pcm = np.concatenate(parts)
    pcm = np.concatenate([pcm, np.zeros(-len(pcm) % step, np.int16)])
    codec: Any = CodecContext.create("libopus", "w")
    codec.sample_rate, codec.layout, codec.format = rate, "mono", "s16"
    codec.bit_rate = 24_000
    codec.options = {"application": "voip", "frame_duration": "60", "compression_level": "0"}
    packets: list[bytes] = []
    for at in range(0, len(pcm), step):
        frame = AudioFrame.from_ndarray(pcm[at : at + step].reshape(1, -1), "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, at, Fraction(1, rate)
        packets += [bytes(packet) for packet in codec.encode(frame)]
    return packets


def decoded(packets: list[bytes]) -> Any:
    """Returns decoded PCM at 48 kHz."""
    codec: Any = CodecContext.create("libopus", "r")
    codec.sample_rate, codec.layout, codec.format = 48_000, "mono", "s16"
    frames = [frame for one in packets for frame in codec.decode(Packet(one))]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


@dataclass
class Board:
    """`boot`, `open`, then `say` and `heard`."""

    http: ClientSession
    mac: str = "a1:b2:c3:d4:e5:f6"
    mode: str = "auto"
    framing: int = 1
    features: dict[str, bool] = field(default_factory=lambda: {"mcp": True})
    frame_duration: int = 60
    version: str = "2.4.2"
    client_id: str = "0b6f3f5e-1111-4222-8333-444455556666"
    "Made when its flash was empty."
    start_s: float = 0.05
    "How long `tts start` takes to be handled."
    flash_of: "Board | None" = None
    "It has been here before, as that one."

    stalls: random.Random | None = None
    "Whether its packets wait for the air now and then, and then come together."
    loses: float = 0.0
    "Of its packets, with `stalls`: its own queue was full, so they are never sent."

    def __post_init__(self) -> None:
        self.flash: dict[str, Any] = dict(self.flash_of.flash) if self.flash_of else {}
        self.state = "idle"
        self.session_id = ""
        self.texts: list[dict[str, Any]] = []
        "Everything that came, with its time under `at`."
        self.played: list[bytes] = []
        self.first_sound_at: list[float] = []
        self.dropped = 0
        "Packets of the microphone that were never sent."
        self.lost = 0
        "Packets that came when none was taken, or found the queue full."
        self.queued_most = 0
        self.left_at_stop: list[int] = []
        "Packets that were not played when `tts stop` came."
        self.calls: list[tuple[str, Any]] = []
        self.images: list[bytes] = []
        "Firmware that it fetched."
        self.closed: asyncio.Event = asyncio.Event()
        self.close_code: int | None = None
        self.ws: ClientWebSocketResponse | None = None
        self._queue: deque[bytes] = deque()
        self._to_say: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sound_before = 0
        self._has_said, self._has_played = asyncio.Event(), asyncio.Event()
        self._has_played.set()

    # Booting.

    def headers(self) -> dict[str, str]:
        return {
            "Device-Id": self.mac,
            "Client-Id": self.client_id,
            "Activation-Version": "1",
            "User-Agent": f"bread-compact-wifi/{self.version}",
            "Accept-Language": "en-US",
        }

    async def check_in(self) -> tuple[int, dict[str, Any]]:
        """Sends one check-in; stores the answer in its flash as a board does."""
        body = {
            "version": 2,
            "minimum_free_heap_size": "8123456",
            "mac_address": self.mac,
            "application": {"name": "xiaozhi", "version": self.version},
            "board": {"type": "bread-compact-wifi", "name": "bread", "ip": "192.168.1.40"},
        }
        async with self.http.post("/xiaozhi/ota/", json=body, headers=self.headers()) as response:
            if response.status != 200:
                return response.status, {}
            told: dict[str, Any] = await response.json()
        if "mqtt" in told:
            raise Broken("mqtt wins over websocket")
        for key, value in told.get("websocket", {}).items():
            if len(key) > MAX_KEY_CHARS or not isinstance(value, str | int):
                raise Broken(f"a boot loop by {key}")
            self.flash[key] = value
        if "firmware" in told:
            for part in told["firmware"]["version"].split("."):
                int(part)
            if told["firmware"]["version"] != self.version:
                await self.fetch(told["firmware"]["url"])
            elif told["firmware"]["url"]:
                raise Broken("it fetches what it has")
        return 200, told

    async def fetch(self, url: str) -> None:
        """Fetches its firmware, which needs a Content-Length, from exactly the URL that it got."""
        async with self.http.get(url, headers=self.headers()) as response:
            image = await response.read()
            if response.status != 200 or response.content_length != len(image):
                raise Broken(f"no firmware: {response.status}")
        self.images.append(image)
        self._changed.set()

    async def fetched(self, count: int) -> None:
        """Waits until it has so many images."""
        while len(self.images) < count:
            self._changed.clear()
            await self._changed.wait()

    async def boot(self, *, tries: int = 10, pending_s: float = 0.02) -> None:
        """Checks in until it gets the URL to connect to; `pending_s` stands for 3 s."""
        for _ in range(tries):
            status, told = await self.check_in()
            if status != 200:
                raise Broken(f"check-in: {status}")
            activation = told.get("activation")
            if activation is None:
                return
            if "challenge" not in activation:
                raise Broken("a code that is shown for ever")
            for _ in range(10):
                path = "/xiaozhi/ota/activate"
                async with self.http.post(path, data=b"{}", headers=self.headers()) as answer:
                    if answer.status == 200:
                        break
                    assert answer.status == 202
                await asyncio.sleep(pending_s)
        raise Broken("never activated")

    # Connecting.

    async def open(
        self, *, listens: bool = True, replaced: Mapping[str, str] | None = None
    ) -> None:
        """Connects; `replaced` holds wrong headers."""
        headers = self.headers() | {"Protocol-Version": str(self.framing)}
        if self.flash.get("token"):
            headers["Authorization"] = f"Bearer {self.flash['token']}"
        self.ws = await self.http.ws_connect(
            self.flash["url"],
            headers={**headers, **(replaced or {})},
            autoclose=True,
            max_msg_size=2**20,
        )
        self.closed.clear()
        self._begin(self._read(self.ws))
        hello = {
            "type": "hello",
            "version": 1,
            "transport": "websocket",
            "features": self.features,
            "audio_params": {
                "format": "opus",
                "sample_rate": 16000,
                "channels": 1,
                "frame_duration": self.frame_duration,
            },
        }
        await self.ws.send_str(json.dumps(hello))
        async with asyncio.timeout(10):
            answer = await self.text("hello")
        if answer.get("transport") != "websocket":
            raise Broken("a null dereference, or a time-out")
        params = answer.get("audio_params", {})
        assert (params.get("sample_rate", 24000), params.get("frame_duration", 60)) == (24000, 60)
        self.session_id = answer.get("session_id", "")
        self._begin(self._microphone())
        self._begin(self._loudspeaker())
        if listens:
            await self.listen()

    async def listen(self) -> None:
        self.state = "listening"
        await self.tell({"type": "listen", "state": "start", "mode": self.mode})
        self._changed.set()

    async def wake(self, text: str = 'say "hi"', level: int = 9000) -> None:
        """Sends a wake word before it listens; its text is not escaped."""
        assert self.ws is not None
        for packet in speech("four", level=level):
            await self.ws.send_bytes(self.framed(packet))
        message = '{"session_id":"%s","type":"listen","state":"detect","text":"%s"}'
        await self.ws.send_str(message % (self.session_id, text))

    async def hang_up(self) -> None:
        """Drops its TCP connection."""
        if self.ws is not None and self.ws._response.connection is not None:
            transport = self.ws._response.connection.transport
            if transport is not None:
                transport.abort()
        await self._stop()

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.state = "idle"
        self._queue.clear()
        self._to_say.clear()

    # Talking.

    async def tell(self, message: dict[str, Any]) -> None:
        assert self.ws is not None
        await self.ws.send_str(json.dumps({"session_id": self.session_id, **message}))

    def say(self, *words: str) -> None:
        """Plays words into the microphone, from the next packet on."""
        self.say_packets(speech(*words))

    def say_packets(self, packets: list[bytes]) -> None:
        self._to_say += packets
        self._has_said.clear()

    async def text(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Returns the next matching message, and drops those before it."""
        while True:
            message = await self.text_of(kind)
            if fields.items() <= message.items():
                return message

    async def text_of(self, *kinds: str) -> dict[str, Any]:
        """Returns the next message of these types, also without a state."""
        while True:
            while self.texts:
                message = self.texts.pop(0)
                if message["type"] in kinds:
                    return message
            if self.closed.is_set():
                raise ConnectionError(f"closed while it waited for {kinds}: {self.close_code}")
            self._changed.clear()
            await self._changed.wait()

    async def half_said(self) -> None:
        """Waits until about half of its speech is sent."""
        half = len(self._to_say) // 2
        while len(self._to_say) > half:
            self._changed.clear()
            await self._changed.wait()

    async def until(self, state: str) -> None:
        while self.state != state:
            if self.closed.is_set():
                raise ConnectionError(f"closed: {self.close_code}")
            self._changed.clear()
            await self._changed.wait()

    async def release(self) -> None:
        """Releases its button once all speech is sent."""
        await self._has_said.wait()
        await self.tell({"type": "listen", "state": "stop"})
        self.state = "idle"

    async def turn(self, *words: str) -> tuple[str, list[str]]:
        """Speaks; returns transcript and answer once the answer has played."""
        await self.until("listening")
        self.say(*words)
        if self.mode == "manual":
            await self.release()
        stt = await self.text("stt")
        await self.text("tts", state="start")
        sentences = []
        while (message := await self.text("tts"))["state"] != "stop":
            sentences.append(message["text"])
        return stt["text"], sentences

    def framed(self, packet: bytes) -> bytes:
        match self.framing:
            case 1:
                return packet
            case 2:
                return struct.pack("!HHIII", 2, 0, 0, 0, len(packet)) + packet
            case _:
                return struct.pack("!BBH", 0, 0, len(packet)) + packet

    def _unframed(self, frame: bytes) -> bytes:
        match self.framing:
            case 1:
                return frame
            case 2:
                version, kind, _, _, size = struct.unpack_from("!HHIII", frame)
                assert (version, kind) == (2, 0)
                packet = frame[16:]
            case _:
                kind, _, size = struct.unpack_from("!BBH", frame)
                assert kind == 0
                packet = frame[4:]
        if size != len(packet):
            raise Broken("it reads beyond the frame")
        return packet

    # Its tasks.

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

    async def _read(self, ws: ClientWebSocketResponse) -> None:
        async for message in ws:
            if message.type is WSMsgType.TEXT:
                self._take(json.loads(message.data))
            elif message.type is WSMsgType.BINARY:
                self._sound(self._unframed(message.data))
        if ws is self.ws:
            self.close_code, self.state = ws.close_code, "idle"
            self.closed.set()
            self._changed.set()

    def _take(self, message: dict[str, Any]) -> None:
        message["at"] = asyncio.get_running_loop().time()
        self.texts.append(message)
        if message["type"] == "tts" and message["state"] == "start":
            self._begin(self._to_speaking())
        elif message["type"] == "tts" and message["state"] == "stop":
            self.left_at_stop.append(len(self._queue))
            self._begin(self._after_speaking())
        elif message["type"] == "mcp":
            self._begin(self._answer(message["payload"]))
        self._changed.set()

    def _sound(self, packet: bytes) -> None:
        if self.state != "speaking" or len(self._queue) >= QUEUE_PACKETS:
            self.lost += 1
            return
        if not self._sound_before:
            self.first_sound_at.append(asyncio.get_running_loop().time())
        self._sound_before += 1
        self._queue.append(packet)
        self._has_played.clear()
        self.queued_most = max(self.queued_most, len(self._queue))

    async def _to_speaking(self) -> None:
        await asyncio.sleep(self.start_s)
        self._queue.clear()
        self._sound_before = 0
        self.state = "speaking"
        self._changed.set()

    async def _after_speaking(self) -> None:
        await asyncio.sleep(0.005)
        if self.state != "speaking":
            return
        if self.mode == "manual":
            self.state = "idle"
        elif self.mode == "realtime":
            self.state = "listening"
        else:
            await self._has_played.wait()
            if self.state == "speaking":
                with suppress(ConnectionError):
                    await self.listen()
        self._changed.set()

    async def _microphone(self) -> None:
        loop, sent = asyncio.get_running_loop(), 0
        began = loop.time()
        while self.ws is not None and not self.ws.closed:
            if self.state == "listening" or (self.state == "speaking" and self.mode == "realtime"):
                packet = self._to_say.popleft() if self._to_say else bytes(sent % 4)
                if not self._to_say:
                    self._has_said.set()
                is_lost = self.stalls is not None and self.stalls.random() < self.loses
                self.dropped += is_lost
                if not is_lost:
                    with suppress(ConnectionError):
                        await self.ws.send_bytes(self.framed(packet))
                self._changed.set()
            sent += 1
            stall_s = 0.0
            if self.stalls is not None and self.stalls.random() < 0.05:
                stall_s = self.stalls.uniform(0.05, 0.3)
            await asyncio.sleep(began + sent * PACKET_S + stall_s - loop.time())

    async def _loudspeaker(self) -> None:
        """Plays packets by its own clock, which does not wait for the server's."""
        loop, over_at = asyncio.get_running_loop(), 0.0
        while True:
            if self.state == "speaking" and self._queue:
                self.played.append(self._queue.popleft())
                now = loop.time()
                over_at = (now if now > over_at + 0.02 else over_at) + PACKET_S
                await asyncio.sleep(over_at - now)
            else:
                self._has_played.set()
                await asyncio.sleep(0.005)

    async def _answer(self, request: dict[str, Any]) -> None:
        """Answers as the board's MCP server, which has one tool on each page."""
        method, params = request["method"], request.get("params", {})
        if not isinstance(request.get("id"), int):
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if method == "initialize":
            assert params["capabilities"]["vision"] == {"url": "", "token": ""}
            about = {"name": "bread", "version": "2.4.2"}
            answer["result"] = {"protocolVersion": "2024-11-05", "serverInfo": about}
        elif method == "tools/list":
            at = int(params["cursor"] or 0)
            answer["result"] = {"tools": TOOLS[at : at + 1]}
            if at + 1 < len(TOOLS):
                answer["result"]["nextCursor"] = str(at + 1)
        else:
            self.calls.append((params["name"], params["arguments"]))
            known = params["name"] in {tool["name"] for tool in TOOLS}
            if params["name"] == "self.upgrade_firmware":  # for people: it is not listed
                known = True
                self._begin(self.fetch(params["arguments"]["url"]))
            if known:
                text = {"type": "text", "text": "true"}
                answer["result"] = {"content": [text], "isError": False}
            else:
                answer["error"] = {"message": f"Unknown tool: {params['name']}"}
        await self.tell({"type": "mcp", "payload": answer})
        self._changed.set()
