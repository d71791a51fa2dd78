"""Opens the speakers of a recording: those whose voices the client sends with the request, and
those whom the server knows."""

import re
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack, aclosing, asynccontextmanager, suppress

import numpy as np

from core.access.named_key import CALLER_KEY
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import SpeakerProfile
from core.errors import EngineMissing, RequestError
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpools
from pipeline.transcription.diarisation.recording import RecordingSpeakers, open_speakers
from serving.speaker.recognition import RecordingVoices, SpeakerRecognition
from web.openai.transcriptions.request import REFERENCES_FIELD, KnownSpeaker, TranscriptionRequest

MIN_REFERENCE_S, MAX_REFERENCE_S = 2.0, 10.0
"Shortest and longest recording of a voice, as with OpenAI's service."

TOLERANCE_S = 0.1
"Length that a recording may differ from these: MP3 and AAC add silence at both ends."

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)


class SpeakersOfRequests:
    """Opens the speakers of each request that asks for them."""

    def __init__(
        self,
        recognition: SpeakerRecognition | None,
        spools: UploadSpools,
        decoder: FileDecoder,
    ) -> None:
        """Takes the parts. `recognition`: None if requests for speakers are refused. `spools`,
        `decoder`: for the voices that a client sends."""
        self._recognition, self._spools, self._decoder = recognition, spools, decoder

    @asynccontextmanager
    async def open(self, job: TranscriptionRequest) -> AsyncIterator[RecordingSpeakers | None]:
        """Opens the speakers of one recording; None if the request asks for none.

        Raises RequestError if the server has no model for it, or a voice cannot be used;
        EngineError, OverloadedError.
        """
        if not job.has_speakers:
            yield None
            return
        with ExitStack() as stack:
            try:
                voices = stack.enter_context(self._open_recording())
            except EngineMissing as error:
                is_format = job.response_format == "diarized_json"
                raise RequestError(
                    f"This server cannot tell speakers apart: {error.detail}.",
                    code="unsupported_parameter",
                    param="response_format" if is_format else "include[]",
                ) from error
            named = [
                await self._profile(number, speaker, voices)
                for number, speaker in enumerate(job.known_speakers, 1)
            ]
            async with open_speakers(voices, named) as speakers:
                yield speakers

    def _open_recording(self) -> AbstractContextManager[RecordingVoices]:
        if self._recognition is None:
            raise EngineMissing("speaker", "none", "it has no recognition of speakers")
        return self._recognition.open_recording(CALLER_KEY.get())

    async def _profile(
        self, number: int, speaker: KnownSpeaker, voices: RecordingVoices
    ) -> SpeakerProfile:
        """Returns a voice that the client sent. Raises RequestError, which names it by its number,
        from 1."""
        try:
            pcm = await self._decode(reference_bytes(speaker.reference))
        except RequestError as error:
            raise _refused(number, str(error), error.code) from error
        seconds = len(pcm) / ASR_RATE_HZ
        if not MIN_REFERENCE_S - TOLERANCE_S <= seconds <= MAX_REFERENCE_S + TOLERANCE_S:
            length = "more than 10 s" if seconds > MAX_REFERENCE_S else f"{seconds:.1f} s"
            raise _refused(number, f"it has {length}; allowed: 2 to 10 s")
        vector = await voices.vector(pcm)
        if vector is None:
            raise _refused(number, "it has less than half a second of speech")
        return SpeakerProfile("", speaker.name, vector)

    async def _decode(self, data: bytes) -> Pcm:
        """Returns the sound. Of a recording that is too long, only the beginning is decoded."""
        pieces: list[Pcm] = []
        missing = round((MAX_REFERENCE_S + 2 * TOLERANCE_S) * ASR_RATE_HZ)
        with self._spools.open() as spool:
            await spool.write(data)
            async with aclosing(self._decoder.blocks(await spool.file(), ASR_RATE_HZ)) as blocks:
                async for block in blocks:
                    pieces.append(block[:missing])
                    missing -= len(pieces[-1])
                    if not missing:
                        break
        return np.concatenate(pieces)


def reference_bytes(text: str) -> bytes:
    """Returns the content of a data URL. Raises RequestError invalid_value."""
    head = _DATA_URL.match(text)
    with suppress(ValueError):
        if head is not None:
            return b64decode("".join(text[head.end() :].split()), validate=True)
    raise RequestError(
        "it is no data URL with base64, such as data:audio/wav;base64,UklGRg==",
        code="invalid_value",
    )


def _refused(number: int, why: str, code: str = "invalid_value") -> RequestError:
    message = f"Invalid value for '{REFERENCES_FIELD}', number {number}: {why}."
    return RequestError(message, code=code, param=REFERENCES_FIELD)
