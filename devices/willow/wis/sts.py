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
from devices.willow.wis.tts import RATE_HZ, file_options, read_tts_params, speak, spoken_language
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFiles, single_text
from serving.asr.scheduling import DecodePriority

UploadRecogniser = Callable[[aioweb.Request, AsrParams, DecodePriority], Awaitable[WisTranscript]]
"Function that recognises the recording in an upload."


class SpeechToSpeech:
    """Handler of `POST /api/sts`."""

    def __init__(
        self,
        engines: EngineSet,
        chatbot: Chatbot,
        speech_files: SpeechFiles,
        transcribe: UploadRecogniser,
    ) -> None:
        self._engines, self._chatbot, self._speech_files, self._transcribe = (
            engines,
            chatbot,
            speech_files,
            transcribe,
        )

    async def serve(self, request: aioweb.Request, params: AsrParams) -> aioweb.StreamResponse:
        """Handles a request. Raises RequestError (also no_speech), EngineError, OverloadedError."""
        query = request.query
        tts_params = read_tts_params(query, self._engines, default_format=FORMAT)
        is_question = switch_of(query, "answer")
        # a wrong parameter is reported before the recording is recognised
        read_question({**query, "model": ""}, "")
        transcript = await self._transcribe(request, params, DecodePriority.FINAL)
        text = transcript.text if transcript.translation is None else transcript.translation
        if not text.strip():
            raise RequestError(
                "no speech was recognised in the recording", code="no_speech", param="audio_file"
            )
        is_english = transcript.translation is not None or params.options.task == "translate"
        language = ENGLISH if is_english else transcript.language
        if is_question:
            # Here the parameter `model` names the recogniser.
            question_query = {**query, "model": "", "language": language}
            question = read_question(question_query, text)
            return await while_connected(
                request, self._chatbot.speak(request, question, tts_params)
            )
        language = spoken_language(language, self._engines)
        file = self._speech_files.file(
            single_text(text), file_options(tts_params, language), tts_params.kind, RATE_HZ
        )
        return await while_connected(request, speak(request, file))
