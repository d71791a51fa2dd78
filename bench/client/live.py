"""GPT-Live client over a WebSocket. It reports its events as those of the Realtime API, so that the
same measurements serve both. The server sends sound as fast as it is heard, as over WebRTC."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import ClientWebSocketResponse

from bench.client.http import Address, connect_errors, http_session
from bench.client.realtime import (
    CONNECT_TIMEOUT_S,
    ClientTransport,
    Json,
    OnSound,
    SessionRequest,
    background,
    wait_for_event,
)
from bench.client.turn import TRANSCRIPTION
from bench.client.websocket import WebSocketClient, open_websocket

STARTED = "session.started"
"Type of the server's first event."

_ANSWER = "gpt-live-answer"
"Id of each response and its item: GPT-Live has none, and the next answer replaces the last one."


class LiveTurnEvents:
    """Translates the events of GPT-Live to those of the Realtime API which a turn's log knows."""

    def __init__(self) -> None:
        self._words = ""
        "Words of the user since the last answer began."
        self._turn = 0
        self._is_answering = False

    def translated(self, event: Json) -> list[Json]:
        """Returns the events for one event of GPT-Live."""
        match event.get("type"):
            case "session.input_transcript.delta":
                return self._heard(str(event.get("delta", "")))
            case "session.output_transcript.delta":
                return self._said(str(event.get("delta", "")))
            case "error" | "session.started":
                return [event]
            case _:
                return []

    def _heard(self, delta: str) -> list[Json]:
        if self._is_answering:
            self._is_answering, self._words = False, ""
            self._turn += 1
        self._words += delta
        done = {"type": f"{TRANSCRIPTION}.completed", "item_id": f"turn_{self._turn}"}
        return [{**done, "transcript": self._words}]

    def _said(self, delta: str) -> list[Json]:
        told: list[Json] = []
        if not self._is_answering:
            self._is_answering = True
            # No event tells the end of an answer: the client waits until no more sound comes.
            told = [
                {"type": "response.created", "response": {"id": _ANSWER}},
                {
                    "type": "response.output_item.added",
                    "response_id": _ANSWER,
                    "item": {"type": "message", "id": _ANSWER},
                },
                {"type": "response.done", "response": {"id": _ANSWER, "status": "completed"}},
            ]
        words = {"type": "response.output_audio_transcript.delta", "response_id": _ANSWER}
        return [*told, {**words, "delta": delta}]


class LiveWebSocketClient(WebSocketClient):
    """A `RealtimeClient` over a WebSocket of GPT-Live."""

    transport: ClientTransport = "live"
    append_type = "session.input_audio.append"
    sound_type = "session.output_audio.delta"

    def __init__(self, ws: ClientWebSocketResponse, on_sound: OnSound) -> None:
        super().__init__(ws, on_sound)
        self._turn_events = LiveTurnEvents()

    def _translated(self, event: Json) -> list[Json]:
        return self._turn_events.translated(event)


@asynccontextmanager
async def connect_live(
    address: Address, request: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[LiveWebSocketClient, None]:
    """Opens a session while the body runs. Of `request` it sends the model and the voice: the
    server owns the turns. Raises CannotConnect."""
    session: Json = {"model": request.model}
    if request.voice:
        session["audio"] = {"output": {"voice": request.voice}}
    async with http_session(address) as http:
        with connect_errors(address):
            ws = await open_websocket(http, f"{address.url}/v1/live/sessions", address)
        client = LiveWebSocketClient(ws, on_sound)
        try:
            async with background(client.read(), client.write()):
                client.send({"type": "session.start", "session": session})
                await wait_for_event(client.inbox, STARTED, CONNECT_TIMEOUT_S)
                async with background(client.send_audio()):
                    yield client
        finally:
            await ws.close()
