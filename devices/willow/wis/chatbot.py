"""The assistant behind WIS's `/api/chatbot`: takes a text, answers with text or speech."""

from dataclasses import replace

import msgspec
from aiohttp import web as aioweb

from core.http.client_connection import while_connected
from core.http.routes import JSON
from devices.willow.wis.chat_params import check_site, read_question
from devices.willow.wis.tts import (
    RATE_HZ,
    TtsParams,
    file_options,
    head_only,
    read_text,
    read_tts_params,
    speak,
    spoken_language,
)
from pipeline.services import EngineSet
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.shared.settings import DEFAULT
from pipeline.speech.file import SpeechFiles

FORMAT = "flac"
"WIS's audio format if `format` is absent."


class ChatbotReply(msgspec.Struct, frozen=True):
    """Answer in WIS's form."""

    response: str


class Chatbot:
    """Handlers that return one answer per request."""

    def __init__(
        self, engines: EngineSet, one_shot_responses: OneShotResponses, speech_files: SpeechFiles
    ) -> None:
        self._engines, self._one_shot_responses, self._speech_files = (
            engines,
            one_shot_responses,
            speech_files,
        )

    async def write(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/chatbot`."""
        check_site(request)
        question = read_question(request.query, read_text(request.query))
        headers = {"Cache-Control": "no-store"}
        if request.method == "HEAD":
            return aioweb.Response(content_type=JSON, headers=headers)
        answer = ChatbotReply(await while_connected(request, self.text(question)))
        return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON, headers=headers)

    async def say(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /api/chatbot/tts`."""
        check_site(request)
        question = read_question(request.query, read_text(request.query))
        params = read_tts_params(request.query, self._engines, default_format=FORMAT)
        if head := head_only(request, params):
            return head
        return await while_connected(request, self.speak(request, question, params))

    async def text(self, question: OneShotRequest) -> str:
        """Returns the whole answer. Raises EngineError, OverloadedError, RequestError."""
        async with self._one_shot_responses.open(question) as exchange:
            return await exchange.text()

    async def speak(
        self, request: aioweb.Request, question: OneShotRequest, params: TtsParams
    ) -> aioweb.StreamResponse:
        """Streams the answer as speech, from its first clause on.

        Raises the errors of `text`, and unsupported_language before the question is asked.
        """
        async with self._one_shot_responses.open(replace(question, is_spoken=True)) as exchange:
            plan = exchange.plan
            language = spoken_language(plan.language, self._engines)
            voice = params.voice or (None if plan.voice == DEFAULT else plan.voice)
            answer_params = TtsParams(params.kind, voice, speed=params.speed or plan.speed)
            file = self._speech_files.file(
                exchange.texts(), file_options(answer_params, language), params.kind, RATE_HZ
            )
            return await speak(request, file)
