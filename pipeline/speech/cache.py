"""Cache of short clauses that are spoken often (`Okay.`, `The light is on.`).

It holds single clauses: an answer whose first clause is known begins at once, whatever follows.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes

import numpy as np

from core.audio import AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.ports import Metrics
from engines.base import Tts, WordMark

MAX_TEXT_CHARS = 60
"Most characters of a cached clause. Longer ones are hardly ever spoken twice."
MAX_ENTRY_BYTES = 512 * 1024
"Most bytes of one clause: 11 s at 24 kHz, sixty letters spoken slowly."
MAX_BYTES = 32 * 1024 * 1024
"""Most bytes of the cache: some 300 clauses of two seconds. That is more than a home needs, and
little compared with any model."""
MAX_ENTRIES = 512
"Most clauses in the cache, however short they are."
MAX_SEEN = 4096
"Most fingerprints (16 bytes each) of clauses that were spoken once: a day of a busy home."
FRAME_MS = 400
"Length of the frames that a cached clause is given out in, in ms."

VoiceCacheKey = bytes
"Keyed fingerprint of a clause and its voice. The cache holds no text."


@dataclass(frozen=True, slots=True)
class CachedSpeech:
    """Sound of one clause, with the times of its words."""

    pcm: Pcm
    words: tuple[WordMark, ...]
    "Word times, counted from the clause's own first sample."


class VoiceCache:
    """Least-recently-used clauses of all engines together, in memory only.

    A clause is kept from its second time on. One that is spoken only once is often private.
    """

    def __init__(
        self, metrics: Metrics, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._metrics = metrics
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._sounds: OrderedDict[VoiceCacheKey, CachedSpeech] = OrderedDict()
        self._seen: OrderedDict[VoiceCacheKey, None] = OrderedDict()
        self._secret = token_bytes(16)
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sounds)

    @property
    def size_bytes(self) -> int:
        """Size of all sound in the cache."""
        return self._bytes

    def key(self, engine: str, text: str, language: str, voice: str, speed: float) -> VoiceCacheKey:
        """Returns the fingerprint of a clause in one voice of one engine."""
        parts = "\0".join((engine, language, voice, repr(float(speed)), text))
        data = parts.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._secret).digest()

    def get(self, key: VoiceCacheKey) -> CachedSpeech | None:
        """Returns the clause's sound, or None."""
        sound = self._sounds.get(key)
        if sound is not None:
            self._sounds.move_to_end(key)
        self._metrics.count("earshot_tts_cache", outcome="miss" if sound is None else "hit")
        return sound

    def was_spoken_before(self, key: VoiceCacheKey) -> bool:
        """Returns whether the clause was spoken to its end before."""
        return key in self._seen

    def record(self, key: VoiceCacheKey, sound: CachedSpeech | None) -> None:
        """Notes that a clause was spoken to its end, and keeps its sound from the second time on.

        sound: None if it was too long to keep.
        """
        if key in self._seen and sound is not None and sound.pcm.nbytes <= MAX_ENTRY_BYTES:
            self._keep(key, sound)
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)

    def count_time(self, took_s: float, sound_s: float) -> None:
        """Counts how long a voice took for a clause, and how long the clause sounds, both in s."""
        self._metrics.observe("earshot_tts_realtime_factor", took_s / sound_s)

    def clear(self) -> None:
        """Forgets all clauses and all fingerprints."""
        self._sounds.clear()
        self._seen.clear()
        self._bytes = 0
        self._metrics.gauge("earshot_tts_cache_bytes", 0)

    def _keep(self, key: VoiceCacheKey, sound: CachedSpeech) -> None:
        if (old := self._sounds.pop(key, None)) is not None:
            self._bytes -= old.pcm.nbytes
        self._sounds[key] = sound
        self._bytes += sound.pcm.nbytes
        while self._bytes > self._max_bytes or len(self._sounds) > self._max_entries:
            _, dropped = self._sounds.popitem(last=False)
            self._bytes -= dropped.pcm.nbytes
        self._metrics.gauge("earshot_tts_cache_bytes", self._bytes)


class CachedTts:
    """A `Tts` that asks another one only for clauses that are not in the cache.

    It asks for each clause alone, because each may be in the cache.
    """

    def __init__(self, tts: Tts, cache: VoiceCache) -> None:
        self.info = tts.info
        self._tts, self._cache = tts, cache

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """See `Tts.speak`."""
        start = index = 0
        async for chunk in text:
            clause = ClauseRequest(chunk, index, start, self.info.rate_hz, on_word)
            if len(chunk) <= MAX_TEXT_CHARS:
                frames = self._short(clause, language, voice, speed)
            else:
                frames = self._made(clause, language, voice, speed, on_word and clause.report)
            async with aclosing(frames):
                async for frame in frames:
                    yield frame
                    start = frame.end
            index += 1

    async def _short(
        self, clause: "ClauseRequest", language: str, voice: str | None, speed: float
    ) -> AsyncGenerator[AudioFrame, None]:
        """Yields a clause from the cache, or has it spoken and puts it there."""
        named = voice or next(iter(self.info.voices.get(language, ())), "")
        key = self._cache.key(self.info.name, clause.text, language, named, speed)
        if (sound := self._cache.get(key)) is not None:
            for frame in clause.replay(sound):
                yield frame
            return
        keeps = self._cache.was_spoken_before(key)
        words, parts, kept_bytes = list[WordMark](), list[Pcm](), 0

        def keep_word(mark: WordMark) -> None:
            words.append(mark)
            clause.report(mark)

        on_word = keep_word if keeps else clause.on_word and clause.report
        async with aclosing(self._made(clause, language, voice, speed, on_word)) as frames:
            async for frame in frames:
                kept_bytes += frame.pcm.nbytes
                keeps = keeps and kept_bytes <= MAX_ENTRY_BYTES
                if keeps:
                    parts.append(frame.pcm)
                else:
                    parts.clear()
                yield frame
        # Reached only if the caller read to the end; a part must not be cached.
        whole = (
            CachedSpeech(_read_only(np.concatenate(parts)), tuple(words))
            if keeps and parts
            else None
        )
        self._cache.record(key, whole)

    async def _made(
        self,
        clause: "ClauseRequest",
        language: str,
        voice: str | None,
        speed: float,
        on_word: Callable[[WordMark], None] | None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Yields the sound of a clause that is not in the cache."""
        frames = self._tts.speak(
            clause.alone(), language=language, voice=voice, speed=speed, on_word=on_word
        )
        now = asyncio.get_running_loop().time
        waited_s, sound_s, since = 0.0, 0.0, now()
        async with aclosing(frames):
            async for frame in frames:
                waited_s, sound_s = waited_s + now() - since, sound_s + frame.duration_ms / 1000
                yield clause.placed(frame)
                since = now()  # do not count the time that the caller takes
        if sound_s > 0:
            self._cache.count_time(waited_s + now() - since, sound_s)


@dataclass(frozen=True, slots=True)
class ClauseRequest:
    """One clause of a text, which an engine is asked for alone, and its place in the sound."""

    text: str
    index: int
    start: int
    "Sample of the text's sound at which the clause begins."
    rate_hz: int
    on_word: Callable[[WordMark], None] | None
    begin: int = 0
    "Index of the clause's first character in its chunk."

    async def alone(self) -> AsyncIterator[str]:
        yield self.text

    def placed(self, frame: AudioFrame) -> AudioFrame:
        """Returns a frame that counts from the beginning of the clause as one of the whole text."""
        return AudioFrame(frame.pcm, frame.rate_hz, self.start + frame.start)

    def report(self, mark: WordMark) -> None:
        """Reports a word. `mark` counts from the beginning of the clause."""
        if self.on_word is not None:
            at_ms = samples_to_ms(self.start, self.rate_hz)
            start_ms, end_ms = at_ms + mark.start_ms, at_ms + mark.end_ms
            end_char = self.begin + mark.end_char
            self.on_word(WordMark(self.index, end_char, start_ms, end_ms))

    def replay(self, sound: CachedSpeech) -> list[AudioFrame]:
        """Returns the frames of a cached clause. All its words are reported before the frames."""
        for word in sound.words:
            self.report(word)
        size = ms_to_samples(FRAME_MS, self.rate_hz)
        return [
            AudioFrame(sound.pcm[at : at + size], self.rate_hz, self.start + at)
            for at in range(0, len(sound.pcm), size)
        ]


def _read_only(pcm: Pcm) -> Pcm:
    """Returns `pcm` protected against writing: all listeners share its samples."""
    pcm.setflags(write=False)
    return pcm
