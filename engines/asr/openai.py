"""Engine for recognition by another server's `/v1/audio/transcriptions`.

Each decode is one request with the whole utterance so far, as for every recogniser that keeps no
state. The protocol has no confidence, so voice activity detection decides what is noise.
Cancelling closes the connection, which ends the server's work.
"""

import asyncio
import io
import threading
import wave
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.errors import EngineError, first_error
from engines.base import AsrInfo, AsrItem, AsrResult, OnDecoded, Segment
from engines.runtime.openai_http.errors import OpenAiHttpError

if TYPE_CHECKING:
    import aiohttp

    from engines.runtime.openai_http.client import OpenAiHttpClient

LEAST_MS = 100
"Shortest sound that is sent. OpenAI's service refuses shorter sound, which has no word."
DEFAULT_REQUESTS = 8
"Default of `Settings.max_requests`."
WINDOW_MS = 30_000.0
"Longest sound of one request. Whisper's servers cut longer sound without regard to pauses."


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `openai`."""

    base_url: str = ""
    "Address of the API including its version: `http://127.0.0.1:8000/v1`."
    model: Annotated[str, Meta(min_length=1)] = "whisper-1"
    languages: Annotated[tuple[str, ...], Meta(min_length=1)] = ("en",)
    "ISO 639-1 codes of the languages that the model recognises."
    api_key: str = ""
    api_key_file: str = ""
    "File with the key, read at start; replaces `api_key`."
    max_requests: Annotated[int, Meta(ge=1, le=256)] = DEFAULT_REQUESTS
    "Most requests at once; further utterances wait."
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 8.0
    "Longest wait for a text, retry included. A worker that is silent for 10 s counts as hung."
    extra_fields: dict[str, str] = field(default_factory=dict[str, str])
    "Further fields of the form, for servers that have some of their own."

    def __repr__(self) -> str:
        """Returns the settings without the key, for logs and tracebacks."""
        shown = (
            f"{name}={'***' if name == 'api_key' and value else value!r}"
            for name, value in asdict(self).items()
        )
        return f"Settings({', '.join(shown)})"


class _Answer(Struct):
    """The part of the answer that is used."""

    text: str


class OpenAiAsr:
    """A `ConcurrentAsrModel` over HTTP. It connects on first use."""

    def __init__(self, settings: Settings, client: "OpenAiHttpClient") -> None:
        self.info = describe(settings)
        self._settings, self._client = settings, client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="asr-openai", daemon=True
        )
        self._thread.start()

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`). Raises EngineError, OverloadedError.

        It raises no RequestError: the server decides which options it accepts.
        """
        return self._begun(items).result()

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        """Sends the items, and returns a function that closes their connections (see
        `ConcurrentAsrModel.begin`)."""
        decoding = self._begun(items)

        def report(over: "Future[list[AsrResult]]") -> None:
            if over.cancelled():
                return
            error = over.exception()
            done(error if isinstance(error, Exception) else over.result())

        decoding.add_done_callback(report)

        def cancel() -> None:
            decoding.cancel()

        return cancel

    def forget(self, utterance: str) -> None:
        """Does nothing: nothing is kept of an utterance."""

    def close(self) -> None:
        """Closes all connections and ends the thread."""
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begun(self, items: Sequence[AsrItem]) -> "Future[list[AsrResult]]":
        return asyncio.run_coroutine_threadsafe(self._decode(items), self._loop)

    async def _decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        try:
            async with asyncio.TaskGroup() as tasks:
                texts = [tasks.create_task(self._text_of(item)) for item in items]
        except ExceptionGroup as group:
            raise first_error(group) from None
        return [self._result(item, text.result()) for item, text in zip(items, texts, strict=True)]

    async def _text_of(self, item: AsrItem) -> str:
        """Returns the text of an utterance. Raises EngineError, OverloadedError."""
        from engines.runtime.openai_http.client import WholeBodyReader

        if samples_to_ms(len(item.pcm), ASR_RATE_HZ) < LEAST_MS:
            return ""
        settings, text = self._settings, ""
        bodies = self._client.stream(
            "/audio/transcriptions",
            partial(self._form, item),
            WholeBodyReader,
            first_item_name="text",
            first_timeout_s=settings.timeout_s,
            next_timeout_s=settings.timeout_s,
        )
        try:
            async for body in bodies:
                text = msgspec.json.decode(body, type=_Answer).text
        except OpenAiHttpError as error:
            raise error.public_error([item.options.prompt, item.options.hotwords]) from None
        except msgspec.DecodeError:
            why = f"{self._client.url} answered with a body that has no text"
            raise EngineError("asr", "openai", why) from None
        return " ".join(text.split())

    def _form(self, item: AsrItem) -> "aiohttp.FormData":
        import aiohttp

        options, form = item.options, aiohttp.FormData()
        prompt = ". ".join(filter(None, (options.hotwords, options.prompt)))
        fields: dict[str, Any] = {
            "model": self._settings.model,
            "response_format": "json",
            "language": options.language or "",
            "prompt": prompt,
            **self._settings.extra_fields,
        }
        for name, value in fields.items():
            if value:
                form.add_field(name, value)
        form.add_field("file", _wav(item.pcm), filename="speech.wav", content_type="audio/wav")
        return form

    def _result(self, item: AsrItem, text: str) -> AsrResult:
        length_ms = samples_to_ms(len(item.pcm), ASR_RATE_HZ)
        language = item.options.language or self.info.languages[0]
        segments = (Segment(text, 0.0, length_ms),) if text else ()
        return AsrResult(text, confidence=1.0, language=language, segments=segments)


def describe(settings: Settings) -> AsrInfo:
    """Returns the description of the model."""
    return AsrInfo(
        name="openai",
        model=settings.model,
        languages=settings.languages,
        max_batch=settings.max_requests,
        is_incremental=False,
        window_ms=WINDOW_MS,
        supports=("prompt", "hotwords"),
    )


def create(settings: Settings) -> OpenAiAsr:
    """Returns the engine. Raises ConfigError for bad settings, EngineMissing without address."""
    from engines.runtime.openai_http.client import OpenAiHttpClient

    client = OpenAiHttpClient(
        "asr",
        "openai",
        base_url=settings.base_url,
        api_key=settings.api_key,
        api_key_file=settings.api_key_file,
        connect_timeout_s=settings.connect_timeout_s,
    )
    return OpenAiAsr(settings, client)


def _wav(pcm: Pcm) -> bytes:
    """Returns the samples as a WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        file.writeframes(pcm.astype("<i2").tobytes())
    return buffer.getvalue()
