"""WIS's `POST /api/sts`: takes a recording; speaks its words, its translation or the answer to
it."""

from collections.abc import Awaitable, Callable

from aiohttp import web as aioweb

from core.errors import RequestError
from core.http.client_connection import while_connected
from devices.willow.wis.asr import WisTranscript
from devices.willow.wis.asr_params import ENGLISH, AsrParams
from devices.willow.wis.chat_params import read_question
from devices.willow.wis.chatbot import FORMAT, Chatbot
from devices.willow.wis.params import switch_of
from devices.willow.wis.tts import RATE_HZ, manner, read_tts_params, speak, spoken_language
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFiles, single_text
from serving.scheduling.scheduler import DecodePriority

UploadRecogniser = Callable[[aioweb.Request, AsrParams, DecodePriority], Awaitable[WisTranscript]]
"Function that recognises the recording in an upload."


class SpeechToSpeech:
    """Handler of `POST /api/sts`."""

    def __init__(
        self, engines: EngineSet, chatbot: Chatbot, reader: SpeechFiles, hear: UploadRecogniser
    ) -> None:
        self._engines, self._chatbot, self._reader, self._hear = engines, chatbot, reader, hear

    async def serve(self, request: aioweb.Request, ask: AsrParams) -> aioweb.StreamResponse:
        """Handles a request. Raises RequestError (also no_speech), EngineError, OverloadedError."""
        query = request.query
        wanted = read_tts_params(query, self._engines, usual=FORMAT)
        is_question = switch_of(query, "answer")
        read_question({**query, "model": ""}, "")
        heard = await self._hear(request, ask, DecodePriority.FINAL)
        text = heard.text if heard.translation is None else heard.translation
        if not text.strip():
            raise RequestError(
                "no speech was recognised in the recording", code="no_speech", param="audio_file"
            )
        is_english = heard.translation is not None or ask.options.task == "translate"
        language = ENGLISH if is_english else heard.language
        if is_question:
            # Here the parameter `model` names the recogniser.
            asked = {**query, "model": "", "language": language}
            question = read_question(asked, text)
            return await while_connected(request, self._chatbot.speak(request, question, wanted))
        language = spoken_language(language, self._engines)
        file = self._reader.file(single_text(text), manner(wanted, language), wanted.kind, RATE_HZ)
        return await while_connected(request, speak(request, file))
