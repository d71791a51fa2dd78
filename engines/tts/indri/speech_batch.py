"""Speeches that are written and decoded together, step by step."""

from collections import deque
from dataclasses import dataclass, field

from core.errors import EngineError
from engines.base.codec import DecodeStreams, Samples
from engines.tts.indri.chunks import ChunkSizes
from engines.tts.indri.frames import FrameStream
from engines.tts.indri.settings import NAME
from engines.tts.indri.token_layout import TokenLayout
from engines.tts.token_model.backend import TokenBackend, TokenRequest


@dataclass(eq=False, slots=True)
class BatchedSpeech:
    """One clause in progress."""

    number: int
    "Number in the backend."
    stream: int
    "Stream of the codec."
    frames: FrameStream
    sizes: ChunkSizes = field(default_factory=ChunkSizes)
    sound: deque[Samples] = field(default_factory=deque)
    "Sound that nobody has taken yet."
    is_over: bool = False
    "True: no more sound comes."
    has_failed: bool = False
    "True: a step failed, so the sound is not complete."


class SpeechBatch:
    """Runs the backend and the codec for all speeches. Not safe for several threads.

    Whoever needs sound calls `step`, which goes on with all speeches.
    """

    def __init__(self, backend: TokenBackend, streams: DecodeStreams, layout: TokenLayout) -> None:
        self._backend, self._streams, self._layout = backend, streams, layout
        self._running: dict[int, BatchedSpeech] = {}

    def start(self, request: TokenRequest) -> BatchedSpeech:
        """Adds a speech. Raises OverloadedError when all slots are taken."""
        number = self._backend.start(request)
        try:
            stream = self._streams.open()
        except BaseException:
            self._backend.cancel(number)
            raise
        speech = self._running[number] = BatchedSpeech(number, stream, FrameStream(self._layout))
        return speech

    def take(self, speech: BatchedSpeech) -> Samples | None:
        """Returns the next sound of a speech; None if there is none yet. Raises EngineError if the
        speech failed."""
        if speech.has_failed:
            raise EngineError("tts", NAME, "a step of all running speeches failed")
        return speech.sound.popleft() if speech.sound else None

    def step(self) -> None:
        """Writes one id of every speech, and decodes the frames that are due. If it fails, all
        running speeches fail, because none of their memory can be trusted. Blocking."""
        try:
            self._write_ids()
        except Exception:
            for speech in list(self._running.values()):
                speech.has_failed = True
                self.cancel(speech)
            raise

    def cancel(self, speech: BatchedSpeech) -> None:
        """Ends a speech, and frees its slot and the codec's state. Does nothing if it is over."""
        if self._running.pop(speech.number, None) is not None:
            speech.is_over = True
            self._backend.cancel(speech.number)
            self._streams.close(speech.stream)

    def _write_ids(self) -> None:
        ended = []
        for number, new in self._backend.step().items():
            speech = self._running[number]
            if speech.frames.push(new.id) or new.is_last:
                ended.append(speech)
        self._decode([one for one in self._running.values() if one not in ended], is_last=False)
        self._decode(ended, is_last=True)
        for speech in ended:
            self.cancel(speech)

    def _decode(self, speeches: list[BatchedSpeech], *, is_last: bool) -> None:
        """Decodes the frames that are due. Pieces of equal size are decoded together."""
        while speeches:
            by_size: dict[int, list[BatchedSpeech]] = {}
            for speech in speeches:
                if size := speech.sizes.due(speech.frames.frames, is_last=is_last):
                    by_size.setdefault(size, []).append(speech)
            for size, group in by_size.items():
                codes = {speech.stream: speech.frames.take(size) for speech in group}
                sound = self._streams.step(codes)
                for speech in group:
                    speech.sound.append(sound[speech.stream])
            speeches = [speech for group in by_size.values() for speech in group]
