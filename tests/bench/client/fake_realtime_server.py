"""A Realtime server that follows the protocol sheet. Audio, then silence, is a turn."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import WSMsgType
from aiohttp import web as aioweb

from core.audio import AudioFrame, Pcm
from media.pcm import Framer, dbfs, from_bytes, to_bytes
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings
from tests.media.signals import tone

RATE_HZ = 24_000
QUIET_FRAMES = 10
"200 ms of silence end an utterance."

ANSWER_MS = 300
TRANSCRIPT = "conversation.item.input_audio_transcription"

Json = dict[str, Any]


@dataclass
class Behaviour:
    """How this server differs from a correct stock server."""

    is_ours: bool = False
    "Takes the events named in `include`; another server calls them a mistake."
    key: str = ""
    refuses: tuple[int, Json] | None = None
    "Status and body of every request."
    has_playout_events: bool = True
    outcome: str = "answered"
    "Or failed, rejected, silent (nothing happens), hangs_up."


@dataclass
class Line:
    """The conversation of one connection, over either transport."""

    behaviour: Behaviour
    send: Callable[[Json], None]
    play: Callable[[Pcm], None]
    hang_up: Callable[[], None]
    is_webrtc: bool
    received: list[Json] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    _is_speech: bool = False
    _quiet: int = 0
    _turns: int = 0

    def hear(self, frame: AudioFrame) -> None:
        if dbfs(frame.pcm) > -40:
            if not self._is_speech:
                self._is_speech = True
                self._say("input_audio_buffer.speech_started", item_id="u", audio_start_ms=1)
                self._words("hello", "")
            self._quiet = 0
        elif self._is_speech:
            self._quiet += 1
            if self._quiet == QUIET_FRAMES:
                self._is_speech, self._quiet = False, 0
                self._end()

    def receive(self, text: str) -> None:
        event = json.loads(text)
        if event["type"] != "input_audio_buffer.append":
            self.received.append(event)
        match event["type"]:
            case "session.update":
                self._update(event)
            case "response.create":
                self._answer()

    def _update(self, event: Json) -> None:
        wanted = event["session"].get("include", [])
        if wanted and not self.behaviour.is_ours:
            error = {"type": "invalid_request_error", "code": "invalid_value", "message": "no"}
            self._say("error", error={**error, "event_id": event["event_id"]})
            return
        self.include = wanted
        self._say("session.updated", session=event["session"])
        if "earshot.connection" in wanted:
            up = {"packets": 200, "lost": 5, "jitter_ms": 2.5, "buffer_ms": 0.5}
            told = {"round_trip_ms": 7.0, "up": up if self.is_webrtc else None}
            self._say("earshot.connection", connection=told)

    def _end(self) -> None:
        self._say("input_audio_buffer.speech_stopped", item_id="u", audio_end_ms=999)
        match self.behaviour.outcome:
            case "hangs_up":
                return self.hang_up()
            case "silent":
                return None
        self._say("input_audio_buffer.committed", item_id=f"u{self._turns}")
        rejected = self.behaviour.outcome == "rejected"
        text = "" if rejected else "hello world"
        if self.behaviour.is_ours:
            self._words("hello world", "")
        else:
            self._say(f"{TRANSCRIPT}.delta", item_id="u", delta=" world")
        self._say(f"{TRANSCRIPT}.completed", item_id=f"u{self._turns}", transcript=text)
        if rejected:
            return self._traced("rejected")
        return self._answer()

    def _words(self, stable: str, unstable: str) -> None:
        if self.behaviour.is_ours:
            self._say("earshot.hypothesis", item_id="u", stable=stable, unstable=unstable)
        else:
            self._say(f"{TRANSCRIPT}.delta", item_id="u", delta=stable)

    def _answer(self) -> None:
        self._turns += 1
        ids = {"response_id": f"r{self._turns}", "output_index": 0}
        item = {"id": f"a{self._turns}", "type": "message"}
        response = {"id": ids["response_id"], "status": "in_progress"}
        self._say("response.created", response=response)
        if self.behaviour.outcome == "failed":
            error = {"type": "server_error", "code": "engine_failed", "message": "it broke"}
            details = {"type": "failed", "error": error}
            failed = {**response, "status": "failed", "status_details": details}
            return self._say("response.done", response=failed)
        self._say("response.output_item.added", **ids, item=item)
        self._say("response.output_audio_transcript.delta", **ids, delta="Hi ")
        self._say("response.output_audio_transcript.delta", **ids, delta="there.")
        self._playout("started", ids["response_id"])
        sound = tone(440, RATE_HZ * ANSWER_MS // 1000, RATE_HZ)
        self.play(sound)
        self._say("response.done", response={**response, "status": "completed"})
        if not self.is_webrtc:
            self._traced("answered")
        return None

    def stopped(self) -> None:
        """Waits until the track has played everything."""
        self._playout("stopped", f"r{self._turns}")
        self._traced("answered")

    def _playout(self, stage: str, response_id: Any) -> None:
        if self.is_webrtc and self.behaviour.has_playout_events:
            self._say(f"output_audio_buffer.{stage}", response_id=response_id)

    def _traced(self, status: str) -> None:
        if "earshot.turn" in self.include:
            stages = [{"stage": "asr", "start_ms": 200.0, "end_ms": 230.5}]
            response_id = None if status == "rejected" else f"r{self._turns}"
            turn: Json = {"response_id": response_id, "status": status, "stages": stages}
            turn["response_latency_ms"] = 240.0
            self._say("earshot.turn", turn=turn)

    def _say(self, kind: str, **fields: Any) -> None:
        self.send({"type": kind, "event_id": "e", **fields})


@dataclass
class FakeRealtime:
    """Both APIs. `lines` are the connections so far."""

    behaviour: Behaviour
    lines: list[Line] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    _tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serves on a free loopback port while the body runs; yields the base URL."""
        app = aioweb.Application()
        app.router.add_get("/v1/realtime", self._guarded(self._websocket))
        app.router.add_post("/v1/realtime/calls", self._guarded(self._call))
        runner = aioweb.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            site = aioweb.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            try:
                yield f"http://{host}:{port}"
            finally:
                await runner.cleanup()

    def _guarded(
        self, handler: Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]]
    ) -> Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]]:
        async def run(request: aioweb.Request) -> aioweb.StreamResponse:
            if self.behaviour.refuses is not None:
                status, body = self.behaviour.refuses
                return aioweb.json_response(body, status=status, headers={"Retry-After": "7"})
            key = self.behaviour.key
            if key and request.headers.get("Authorization") != f"Bearer {key}":
                error = {"message": "a key is needed", "code": "invalid_api_key"}
                return aioweb.json_response({"error": error}, status=401)
            return await handler(request)

        return run

    async def _websocket(self, request: aioweb.Request) -> aioweb.StreamResponse:
        ws = aioweb.WebSocketResponse(protocols=("realtime",))
        await ws.prepare(request)
        outgoing: asyncio.Queue[Json | None] = asyncio.Queue()

        def play(pcm: Pcm) -> None:
            audio = b64encode(to_bytes(pcm)).decode()
            outgoing.put_nowait({"type": "response.output_audio.delta", "delta": audio})

        line = Line(
            self.behaviour, outgoing.put_nowait, play, lambda: outgoing.put_nowait(None), False
        )
        self.lines.append(line)
        outgoing.put_nowait({"type": "session.created", "session": {}})
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(_write(ws, outgoing))
            framer = Framer(RATE_HZ)
            async for message in ws:
                if message.type is WSMsgType.TEXT:
                    event = json.loads(message.data)
                    for frame in framer.push(from_bytes(b64decode(event.get("audio", "")))):
                        line.hear(frame)
                    line.receive(message.data)
            writer.cancel()
        return ws

    async def _call(self, request: aioweb.Request) -> aioweb.StreamResponse:
        form = {name: _text(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        waiting: deque[AudioFrame] = deque()
        framer = Framer(RATE_HZ)

        def pull() -> AudioFrame | None:
            frame = waiting.popleft() if waiting else None
            if frame is not None and not waiting:
                line.stopped()
            return frame

        peer = Peer(
            PeerCallbacks(
                pull=pull,
                on_frame=lambda frame: line.hear(frame),  # noqa: PLW0108 - line comes below
                on_message=lambda text: line.receive(str(text)),
                on_open=lambda: line.send({"type": "session.created", "session": {}}),
            ),
            PeerSettings(playout_rate_hz=RATE_HZ),
        )
        line = Line(
            self.behaviour,
            lambda event: peer.send(json.dumps(event)),
            lambda pcm: waiting.extend(framer.push(pcm)),
            peer.stop,
            is_webrtc=True,
        )
        self.lines.append(line)
        answer = await peer.answer(form["sdp"])
        assert self._tasks is not None
        self._tasks.create_task(peer.run())
        headers = {"Location": "/v1/realtime/calls/rtc_1"}
        return aioweb.Response(
            status=201, text=answer, content_type="application/sdp", headers=headers
        )


async def _write(ws: aioweb.WebSocketResponse, outgoing: asyncio.Queue[Json | None]) -> None:
    while (event := await outgoing.get()) is not None:
        await ws.send_str(json.dumps(event))
    await ws.close()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


def speech(lead_ms: float = 100, spoken_ms: float = 400, tail_ms: float = 60) -> Pcm:
    """Returns silence, a tone and silence at 24 kHz."""
    parts: Sequence[Pcm] = (
        np.zeros(round(RATE_HZ * lead_ms / 1000), np.int16),
        tone(300, round(RATE_HZ * spoken_ms / 1000), RATE_HZ),
        np.zeros(round(RATE_HZ * tail_ms / 1000), np.int16),
    )
    return np.concatenate(parts)
