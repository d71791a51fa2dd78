"""An ESP32-S3-BOX with Willow's firmware, as far as a server can see it. Written from
`reference/wis.md` sections 2.1 to 2.4 alone; it shares no code with the server."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

WS_BUFFER_BYTES = 4096
"What the firmware's WebSocket client hands over at once: more would be read in pieces."

REPLY_BYTES = 2048
"The one read of an inference server's answer."

READ_BYTES = 2048
"64 ms of speech, from the ring buffer into a chunk."

USER_AGENT = "Willow/0.4.2-rc.2"
HW_TYPE = "ESP32-S3-BOX-3"
PATIENCE_S = 30.0

AUDIO_HEADERS = {
    "x-audio-sample-rate": "16000",
    "x-audio-bits": "16",
    "x-audio-channel": "1",
    "x-audio-codec": "pcm",
}


@dataclass
class Turn:
    """The outcome of one utterance."""

    won: bool | None = None
    "None: nobody said; then the device acts as the winner."
    status: int = 0
    heard: Mapping[str, Any] = field(default_factory=dict)
    ok: bool | None = None
    speech: str = ""
    sound: bytes = b""


class SimulatedWillow:
    """`flash` says where the application server is; `boot`, `speak`, `cut`, `reboot` as often as
    one likes. What is kept in flash survives a reboot."""

    def __init__(self, number: int, was_url: str, *, address: str = "127.0.0.1") -> None:
        self.mac = [132, 252, 230, 0, number // 256, number % 256]
        self.hostname = "willow-" + "".join(f"{one:02x}" for one in self.mac)
        self.was_url, self.address = was_url, address
        self.config: dict[str, Any] | None = None
        self.nvs: dict[str, Any] | None = None
        self.images: list[bytes] = []
        self.notified: list[Mapping[str, Any]] = []
        self.identified = 0
        self.reboots = 0
        self.close_code: int | None = None
        self.messages: list[dict[str, Any]] = []
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._client: aiohttp.ClientSession | None = None
        self._reader: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self.plays = True
        "False: notifications hang, as when somebody listens to a long one."

    async def boot(self, *, hello: bool = True) -> None:
        connector = aiohttp.TCPConnector(local_addr=(self.address, 0), force_close=True)
        self._client = aiohttp.ClientSession(
            connector=connector, headers={"User-Agent": USER_AGENT}, read_bufsize=2**16
        )
        self._ws = await self._client.ws_connect(self.was_url, max_msg_size=0)
        self.close_code = None
        if hello:
            await self._send("hello", self._who())
            if self.config is None:
                await self.send({"cmd": "get_config"})
        self._reader = asyncio.get_running_loop().create_task(self._read(self._ws))

    async def off(self, *, goodbye: bool = True) -> None:
        """Turns it off. `goodbye`: an orderly restart; otherwise it loses its power."""
        if self._ws is not None and goodbye and not self._ws.closed:
            with suppress(ConnectionError):
                await self._send("goodbye", self._who())
        await self.cut()

    async def cut(self) -> None:
        """Cuts its network."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
        if self._ws is not None:
            transport = self._ws._response.connection and self._ws._response.connection.transport
            if transport is not None:
                transport.abort()
            self._ws = None
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def reboot(self) -> None:
        self.reboots += 1
        await self.off()
        await self.boot()

    async def send(self, message: Mapping[str, Any]) -> None:
        assert self._ws is not None
        await self._ws.send_str(json.dumps(message, indent="\t"))

    async def until(self, is_it: Any) -> None:
        """Waits for the effect of a message, within the test's deadline."""
        while not is_it():
            self._arrived.clear()
            await self._arrived.wait()

    async def configured(self) -> Mapping[str, Any]:
        await self.until(lambda: self.config is not None)
        assert self.config is not None
        return self.config

    async def wake(self, volume: float | None = -20.0) -> None:
        said = {} if volume is None else {"wake_volume": volume}
        await self.send({"wake_start": said})

    async def speak(
        self,
        pcm: bytes,
        *,
        volume: float | None = -20.0,
        wake_arbiter: bool = True,
        at_once: bool = True,
    ) -> Turn:
        """Wake word, speech, answer, as `audio.c` does it. `at_once`: the POST begins with the wake
        word, before anybody said who won."""
        turn, seen = Turn(), len(self.messages)
        if wake_arbiter:
            await self.wake(volume)
        if not at_once:
            await self.until(lambda: self._wake_result(seen) is not None)
        reply = await self._post(pcm, turn)
        if wake_arbiter:
            await self.send({"wake_end": {}})
        turn.won = self._wake_result(seen)
        if turn.won is False or turn.status != 200:
            return turn
        turn.heard = json.loads(reply)
        assert self.config is not None
        if not self.config.get("was_mode"):
            return turn
        await self.send({"cmd": "endpoint", "data": turn.heard})
        if not turn.heard["text"]:
            return turn
        async with asyncio.timeout(PATIENCE_S):
            await self.until(lambda: self._results(seen))
        result = self._results(seen)[0]
        turn.ok, turn.speech = result["ok"], result["speech"]
        url = self.config["wis_tts_url_v2"] + (turn.speech or ("Success" if turn.ok else "Error"))
        turn.sound = (await fetch(url, self.address))[2]
        return turn

    async def break_off(self, pcm: bytes, *, wake_arbiter: bool = True) -> None:
        """Sends a wake word and half of the speech, then loses its power."""
        half_said = asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(pcm) // 2, READ_BYTES):
                yield pcm[at : at + READ_BYTES]
            half_said.set()
            await asyncio.Event().wait()

        assert self._client is not None
        assert self.config is not None
        if wake_arbiter:
            await self.wake()
        posting = asyncio.ensure_future(
            self._client.post(self.config["wis_url"], data=chunks(), headers=AUDIO_HEADERS)
        )
        await half_said.wait()
        await self.cut()
        posting.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError, ConnectionError):
            await posting

    async def speak_and_go(self, pcm: bytes) -> Turn:
        """Loses its power after the words are transcribed and before it has its answer."""
        turn = Turn()
        await self.wake()
        turn.heard = json.loads(await self._post(pcm, turn))
        await self.cut()
        return turn

    def results(self) -> list[Mapping[str, Any]]:
        return self._results(0)

    def _results(self, seen: int) -> list[Mapping[str, Any]]:
        return [one["result"] for one in self.messages[seen:] if "result" in one]

    def _wake_result(self, seen: int) -> bool | None:
        found = [one["wake_result"]["won"] for one in self.messages[seen:] if "wake_result" in one]
        return found[-1] if found else None

    def wake_results(self) -> list[bool]:
        return [one["wake_result"]["won"] for one in self.messages if "wake_result" in one]

    async def _post(self, pcm: bytes, turn: Turn) -> bytes:
        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(pcm), READ_BYTES):
                yield pcm[at : at + READ_BYTES]

        assert self._client is not None
        assert self.config is not None
        url = self.config["wis_url"]
        async with self._client.post(url, data=chunks(), headers=AUDIO_HEADERS) as response:
            turn.status = response.status
            body = await response.read()
        assert len(body) < REPLY_BYTES
        return body

    async def _read(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        async for message in ws:
            assert message.type == aiohttp.WSMsgType.TEXT
            assert len(message.data.encode()) < WS_BUFFER_BYTES
            await self._take(json.loads(message.data))
            self._arrived.set()
        self.close_code = ws.close_code
        self._arrived.set()

    async def _take(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if "config" in message:
            self.config = message["config"]
        if "nvs" in message:
            self.nvs = message["nvs"]
        match message.get("cmd"):
            case "identify":
                self.identified += 1
            case "ota_start":
                status, headers, image = await fetch(message["ota_url"], self.address)
                assert status == 200
                assert int(headers["content-length"]) == len(image)
                self.images.append(image)
            case "notify":
                await self._notify(message["data"])

    async def _notify(self, data: Mapping[str, Any]) -> None:
        self.notified.append(data)
        if data.get("cancel"):
            await self.send({"notify_done": data["id"]})
            return
        if not self.plays:
            return
        for _ in range(data.get("repeat", 1)):
            if "audio_url" in data:
                status, _, sound = await fetch(data["audio_url"], self.address)
                assert (status, sound[:4]) == (200, b"RIFF")
        await self.send({"notify_done": data["id"]})

    def _who(self) -> Mapping[str, Any]:
        return {"hostname": self.hostname, "hw_type": HW_TYPE, "mac_addr": self.mac}

    async def _send(self, name: str, value: Any) -> None:
        await self.send({name: value})


async def fetch(url: str, address: str) -> tuple[int, Mapping[str, str], bytes]:
    """Fetches as the firmware does, with an unescaped URL; returns status, header and body."""
    split = urlsplit(url)
    path = url[url.index(split.netloc) + len(split.netloc) :]
    assert "\r" not in path
    assert "\n" not in path
    reader, writer = await asyncio.open_connection(
        split.hostname, split.port, local_addr=(address, 0)
    )
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {split.netloc}\r\nUser-Agent: ESP32 HTTP Client/1.0"
        writer.write(f"{head}\r\n\r\n".encode())
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        return int(lines[0].split()[1]), headers, await _body(reader, headers)
    finally:
        writer.transport.abort()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    assert headers["transfer-encoding"] == "chunked"
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return body
