"""The transcription API behind the real error handling, with a recogniser of levels."""

import asyncio
import wave
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import ClientResponse, ClientSession, FormData

from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.conversation.speakers import GE2E_THRESHOLDS, SpeakerProfile, VoiceThresholds, VoiceVector
from core.errors import EngineError, EngineMissing
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult, Segment, TokenLogprob, Word
from media.files.upload_spool import SpoolLimits, UploadSpools
from pipeline.services import EngineSet
from pipeline.transcription.recording import Transcriber
from server.config.sections.limits import LimitsConfig
from serving.asr.scheduling import DecodePriority
from serving.remote.models import RemoteModels
from serving.speaker.recognition import RecordingVoices, SpeakerRecognition
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.fakes import LoudVads, words_of
from tests.server.http.harness import serving
from web.openai.models import ModelCard
from web.openai.routes import routes
from web.openai.transcriptions.door import AudioDoor

MAX_UPLOAD_BYTES = 3_000_000
MAX_DURATION_S = 60.0
WINDOW_MS = 5000.0
TIMEOUT_S = 60

ABLE = ("task", "prefix", "timestamps", "token_logprobs")
TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"

ONE, TWO, THREE = 1000, 2000, 3000
"Levels that are words."


def recording(*levels: int, each_ms: float = 1000) -> Pcm:
    """Returns a second of each level; 0 is silence."""
    return np.repeat(np.array(levels, np.int16), ms_to_samples(each_ms, ASR_RATE_HZ))


def wav(pcm: Pcm) -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        file.writeframes(pcm.astype("<i2").tobytes())
    return out.getvalue()


@dataclass
class Listener:
    """A recogniser: each level is a word and a segment. It waits while `is_open` is not set."""

    able: Sequence[str] = ABLE
    info: AsrInfo = field(init=False)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[AsrOptions] = field(default_factory=list)
    passes: int = 0
    under_way: int = 0
    fails_at: tuple[int, Exception] | None = None
    "Which decode (from 0) fails, and how."

    def __post_init__(self) -> None:
        self.info = AsrInfo(
            "listener", "listener", ("en", "de"), 4, False, WINDOW_MS, supports=tuple(self.able)
        )
        self.is_open.set()

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        assert priority is DecodePriority.BATCH
        number = len(self.asked)
        self.asked.append(item.options)
        self.is_asked.set()
        self.under_way += 1
        try:
            if number >= self.passes:
                await self.is_open.wait()
        finally:
            self.under_way -= 1
        if self.fails_at is not None and number == self.fails_at[0]:
            raise self.fails_at[1]
        return _heard(item)

    def forget(self, utterance: str) -> None:
        """Does nothing: this recogniser has no state."""

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None:
        """Admits every utterance."""

    def promote(self, utterance: str) -> None:
        """Does nothing: no utterance waits."""


def _heard(item: AsrItem) -> AsrResult:
    text, options = words_of(item.pcm), item.options
    words = text.split()
    step_ms = samples_to_ms(len(item.pcm), ASR_RATE_HZ) / max(1, len(words))
    spans = [(word, index * step_ms, (index + 1) * step_ms) for index, word in enumerate(words)]
    has_words, has_tokens = options.timestamps == "word", options.token_logprobs
    return AsrResult(
        text,
        0.9,
        options.language or "de",
        words=tuple(Word(w, a, b, 0.9) for w, a, b in spans if has_words),
        segments=tuple(Segment(w, a, b, (index,)) for index, (w, a, b) in enumerate(spans)),
        tokens=tuple(TokenLogprob(w.encode(), -0.5) for w in words if has_tokens),
        language_probability=0.8,
    )


class LevelVoices(SpeakerRecognition):
    """Hears a voice in each level, and both in a piece with two. It waits while `is_open` is not
    set."""

    def __init__(self) -> None:
        self.is_missing = self.is_broken = False
        self.profiles: list[SpeakerProfile] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.under_way = 0

    @property
    def thresholds(self) -> VoiceThresholds:
        return GE2E_THRESHOLDS

    @contextmanager
    def open_recording(self, key: NamedKey | None) -> Iterator[RecordingVoices]:
        if self.is_missing:
            raise EngineMissing("speaker", "ge2e", "`earshot models pull ge2e` fetches a model")
        opened: Any = self
        yield opened

    async def vector(self, pcm: Pcm) -> VoiceVector | None:
        self.under_way += 1
        try:
            await self.is_open.wait()
        finally:
            self.under_way -= 1
        if self.is_broken:
            raise EngineError("speaker", "ge2e", "broken")
        return voice_of(pcm)


def voice_of(pcm: Pcm) -> VoiceVector | None:
    """Returns the vector of sound: an axis for each level. None: less than half a second."""
    levels = (np.abs(pcm[np.abs(pcm) >= 500]) / 1000).round().astype(np.intp)
    if samples_to_ms(len(levels), ASR_RATE_HZ) < 500:
        return None
    lengths = np.bincount(levels, minlength=10).astype(np.float32)
    vector: VoiceVector = lengths / np.linalg.norm(lengths)
    return vector


class Cards:
    """The models that `/v1/models` lists."""

    def cards(self) -> Sequence[ModelCard]:
        return (
            ModelCard(id="listener", created=5, kind="asr"),
            ModelCard(id="other", owned_by="tests", kind="asr"),
        )

    def knows(self, name: str) -> bool:
        return name == "short"


@dataclass
class Server:
    client: ClientSession
    listener: Listener
    spools: UploadSpools
    voices: LevelVoices

    @property
    def url(self) -> str:
        return str(self.client._base_url).rstrip("/")

    async def post(
        self, path: str = TRANSCRIPTIONS, file: bytes | None = None, **fields: Any
    ) -> ClientResponse:
        """Posts a form with the file last, as the SDK does; `list__` is the field `list[]`."""
        form = FormData(default_to_multipart=True)
        for name, value in {"model": "default", **fields}.items():
            for one in [value] if isinstance(value, str) else value:
                form.add_field(name.replace("__", "[]"), one)
        if file is not None:
            form.add_field("file", file, filename="a.wav")
        return await self.client.post(path, data=form)

    async def json(self, file: bytes | None = None, **fields: Any) -> Any:
        response = await self.post(TRANSCRIPTIONS, file, **fields)
        assert response.status == 200, await response.text()
        return await response.json()

    def is_idle(self) -> bool:
        """Whether nothing is kept for any client."""
        under_way = self.listener.under_way + self.voices.under_way
        return (self.spools.count, self.spools.used_bytes, under_way) == (0, 0, 0)


@asynccontextmanager
async def door(folder: Path, **limits: int) -> AsyncIterator[Server]:
    spools = UploadSpools(SpoolLimits(**{"max_bytes": MAX_UPLOAD_BYTES, **limits}), folder)
    listener, voices = Listener(), LevelVoices()
    engines = EngineSet(
        LoudVads(), {"default": listener, "listener": listener, "other": listener}, {}, {}
    )
    opened = AudioDoor(
        Transcriber(engines),
        Cards(),
        spools,
        ThreadDecoder(),
        LimitsConfig().as_limits().transcriptions,
        RemoteModels(),
        voices,
        max_duration_s=MAX_DURATION_S,
    )
    async with serving(routes(opened)) as client:
        yield Server(client, listener, spools, voices)


Runner = Callable[[Coroutine[Any, Any, None]], None]


def against(
    folder: Path,
    scene: Callable[[Server], Awaitable[None]],
    run_loop: Runner = asyncio.run,
    **limits: int,
) -> None:
    """Runs a scene; afterwards the server must be idle."""

    async def run() -> None:
        async with door(folder, **limits) as server, asyncio.timeout(TIMEOUT_S):
            await scene(server)
            await until(server.is_idle)

    run_loop(run())
    assert list(folder.iterdir()) == []


async def until(holds: Callable[[], bool]) -> None:
    """Waits until `holds()`; the caller's timeout ends it."""
    while not holds():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)
