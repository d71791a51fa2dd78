"""WIS's WebSocket to the assistant: each text frame is a question, each answer a text frame."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import msgspec
from aiohttp import WSMsgType
from aiohttp import web as aioweb

from core.access.limits import CapacityLimit
from core.access.named_key import KeySessions, places_for_owner
from core.errors import EarshotError, OverloadedError, RequestError
from devices.willow.wis.chat_params import check_site, read_question
from devices.willow.wis.chatbot import Chatbot
from devices.willow.wis.tts import read_text
from pipeline.conversation.conversation import Conversation
from pipeline.session.one_shot import OneShotResponses

HEARTBEAT_S = 20.0
"""Interval of pings. Proxies cut silent connections at 30 to 60 s. A client that vanished is
noticed within one and a half intervals."""

IDLE_S = 3600.0
"Limit of the time without a frame of the client."

SEND_TIMEOUT_S = 10.0
"Longest wait for a client to take a frame."

MAX_FRAME_BYTES = 64 * 1024
"The longest text has 16 kB in UTF-8."

MAX_WAITING = 8
"Limit of waiting questions, and of announcements that wait to be sent."

RETRY_AFTER_S = 5
"Seconds after which a refused client should try again."


class ChatbotSocket:
    """Serves the connections. Each has its own conversation, or continues the one that it names.

    Announcements in the conversation (a timer rings) are sent as frames of their own.
    """

    def __init__(
        self,
        chatbot: Chatbot,
        one_shot_responses: OneShotResponses,
        key_sessions: KeySessions,
        *,
        max_open: int,
    ) -> None:
        self._chatbot, self._one_shot_responses = chatbot, one_shot_responses
        self._key_sessions = key_sessions
        self._places = CapacityLimit(
            max_open, "{limit} connections are open, the limit", retry_after_s=RETRY_AFTER_S
        )

    async def serve(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /api/ws/chatbot`. Raises RequestError and OverloadedError before the
        upgrade."""
        check_site(request)
        conversation_id = read_question(request.query, "").conversation_id
        ws = aioweb.WebSocketResponse(
            heartbeat=HEARTBEAT_S, max_msg_size=MAX_FRAME_BYTES, compress=False
        )
        if not ws.can_prepare(request).ok:
            raise RequestError("this path speaks WebSocket", code="websocket_expected")
        with self._places.take(places_for_owner()), self._key_sessions.take():
            await ws.prepare(request)
            conversation = self._one_shot_responses.conversation(conversation_id)
            await _ChatbotConnection(ws, self._chatbot, conversation, request.query).run()
        return ws


class _ChatbotConnection:
    """One connection; also a session of its conversation, which speaks its announcements."""

    def __init__(
        self,
        ws: aioweb.WebSocketResponse,
        chatbot: Chatbot,
        conversation: Conversation,
        query: Mapping[str, str],
    ) -> None:
        self._ws, self._chatbot = ws, chatbot
        self._conversation, self._query = conversation, query
        self._questions: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)
        self._announcements: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    async def run(self) -> None:
        """Serves the connection until the client closes it; then the answer in progress is
        cancelled."""
        self._conversation.sessions.append(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                others = (
                    tasks.create_task(self._answer_all(), name="chat-answers"),
                    tasks.create_task(self._send_announcements(), name="chat-announcements"),
                )
                await self._read()
                for task in others:
                    task.cancel()
        finally:
            self._conversation.remove_session(self)

    def say(self, text: str) -> bool:
        """Queues an announcement. Returns False if it cannot be sent here."""
        try:
            self._announcements.put_nowait(text)
        except asyncio.QueueFull:
            return False
        return not self._ws.closed

    async def _read(self) -> None:
        """Reads all the time, also while an answer is made, so that the end of the connection is
        noticed."""
        while True:
            await asyncio.sleep(0)  # thousands may be queued: other tasks run between them
            try:
                message = await self._ws.receive(IDLE_S)
            except TimeoutError:
                await self._ws.close(message=b"idle")
                return
            match message.type:
                case WSMsgType.TEXT if self._questions.full():
                    why = f"{MAX_WAITING} questions wait already, the limit"
                    await self._send(error_frame(OverloadedError(why, retry_after_s=RETRY_AFTER_S)))
                case WSMsgType.TEXT:
                    self._questions.put_nowait(message.data)
                case WSMsgType.BINARY:
                    why = "a question is a text frame, this one is binary"
                    await self._send(error_frame(RequestError(why, code="invalid_message")))
                case _:
                    return

    async def _answer_all(self) -> None:
        while True:
            text = await self._questions.get()
            try:
                question = read_question(self._query, read_text({"text": text}))
                question = replace(question, conversation_id=self._conversation.id)
                answer = await self._chatbot.text(question)
            except EarshotError as error:
                answer = error_frame(error)
            await self._send(answer)

    async def _send_announcements(self) -> None:
        while True:
            await self._send(await self._announcements.get())

    async def _send(self, text: str) -> None:
        """Sends a frame. A client that is gone or takes nothing is not an error: reading then
        ends."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._ws.send_str(text)
        except ConnectionError:
            return
        except TimeoutError:
            await self._ws.close(drain=False)


def error_frame(error: EarshotError) -> str:
    """Returns an error as a frame. WIS has no such frames, so it has the JSON form of HTTP errors,
    which no answer has."""
    detail = {
        "message": str(error),
        "type": "invalid_request_error" if isinstance(error, RequestError) else "server_error",
        "code": error.code,
        "param": getattr(error, "param", None),
    }
    return msgspec.json.encode({"error": detail}).decode()
