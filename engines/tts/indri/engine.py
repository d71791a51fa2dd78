"""Voices of an audio language model. They run in a worker process."""

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from core.audio import AudioFrame, Pcm
from core.errors import RequestError
from engines.base import TtsInfo, WordMark
from engines.base.codec import Samples
from engines.tts.indri.chunks import ClauseJoin
from engines.tts.indri.settings import NAME, Settings
from engines.tts.indri.speech_batch import SpeechBatch
from engines.tts.indri.token_layout import CODEBOOKS, IndriTokenizer, TokenLayout
from engines.tts.shared.text import UNSPEAKABLE, check_speed, choose_voice, clauses_of
from engines.tts.token_model.backend import TokenRequest

MAX_CLAUSE_CHARS = 100
"""Longest text of one prompt. Prompt and speech share the model's 1024 positions, and a second of
speech takes a hundred. A letter of Hindi is up to three tokens."""

_MARKUP = re.compile(r"[\[\]<>|]")
"Characters of which markers are made. A text must not contain a marker."

_REPEATED = re.compile(r"([,.?])(?:\s*\1)+")
"Punctuation that is written several times."


def clean_text(text: str) -> str:
    """Returns the text in the form of the training texts: lower case, single spaces, no repeated
    punctuation. Characters of markers become spaces."""
    lower = _MARKUP.sub(" ", text).lower()
    return " ".join(_REPEATED.sub(r"\1", lower).split())


def speech_prompt(
    text: str, speaker: int, layout: TokenLayout, tokenizer: IndriTokenizer
) -> list[int]:
    """Returns the ids after which the model writes the speech. `text`: from `clean_text`."""
    words = tokenizer.encode(text, add_special_tokens=False).ids
    assert all(one < layout.first_audio for one in words), "clean_text left a marker"
    return [layout.text, *words, layout.convert, layout.mimi, speaker]


def max_speech_ids(prompt: Sequence[int], context: int, limit: int, codebooks: int) -> int:
    """Returns how many ids a speech may have: whole frames, at most `limit` ids, within the
    `context` positions of the model. 0: the prompt leaves no room."""
    return max(0, min(limit, context - len(prompt))) // codebooks * codebooks


class IndriTts:
    """A `Tts`. Each step blocks the event loop; between steps, other speeches begin and end."""

    def __init__(
        self,
        info: TtsInfo,
        batch: SpeechBatch,
        layout: TokenLayout,
        tokenizer: Any,
        context: int,
        settings: Settings,
    ) -> None:
        """`context`: most ids of prompt and speech together."""
        self.info = info
        self._batch, self._layout, self._tokenizer = batch, layout, tokenizer
        self._context, self._settings = context, settings
        self._slots = asyncio.Semaphore(settings.slots)

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech (see `Tts.speak`). The model has one speed, so `speed` is only
        checked, and it gives no times of words.

        Raises RequestError for an unknown language, voice or speed, and UNSPEAKABLE for a clause
        with too many tokens; PayloadTooLarge for a chunk beyond MAX_CHUNK_CHARS; EngineError.
        """
        check_speed(speed)
        speaker = choose_voice(self.info, language, voice)
        join, start = ClauseJoin(), 0

        def frame(pcm: Pcm) -> AudioFrame:
            return AudioFrame(pcm, self.info.rate_hz, start)

        async for chunk in text:
            for _, clause in clauses_of(chunk, max_clause_chars=MAX_CLAUSE_CHARS):
                if not (clean := clean_text(clause)):
                    continue
                join.start_clause()
                async with aclosing(self._clause(clean, speaker)) as sounds:
                    async for sound in sounds:
                        pcm = join.push(sound)
                        yield frame(pcm)
                        start += len(pcm)
        if len(rest := join.end()):
            yield frame(rest)

    async def _clause(self, text: str, speaker: str) -> AsyncGenerator[Samples, None]:
        """Yields the sound of one clause. Closing it frees the slot before the next step."""
        request = self.request(text, speaker)
        async with self._slots:
            speech = self._batch.start(request)
            try:
                while True:
                    if (sound := self._batch.take(speech)) is not None:
                        yield sound
                    elif speech.is_over:
                        return
                    else:
                        self._batch.step()
                    await asyncio.sleep(0)
            finally:
                self._batch.cancel(speech)

    def request(self, text: str, speaker: str) -> TokenRequest:
        """Returns the request for one clause. `text`: from `clean_text`. The same clause is spoken
        in the same way every time."""
        settings = self._settings
        layout, number = self._layout, self._layout.speakers[speaker]
        prompt = speech_prompt(text, number, layout, self._tokenizer)
        max_ids = max_speech_ids(prompt, self._context, settings.max_ids, CODEBOOKS)
        if not max_ids:
            why = f"a clause of {len(prompt)} tokens leaves no room in {self._context}"
            raise RequestError(f"{NAME}: {why}", code=UNSPEAKABLE)
        seed = zlib.crc32(f"{speaker} {text}".encode())
        return TokenRequest(tuple(prompt), max_ids, settings.temperature, settings.top_k, seed)

    def warm_up(self, text: str = "hello") -> None:
        """Speaks one word, so that the libraries have chosen their kernels before the first call.
        Blocking."""
        voices = next(iter(self.info.voices.values()))
        asked = self.request(text, voices[0])
        request = TokenRequest(asked.prompt, CODEBOOKS)
        speech = self._batch.start(request)
        while not speech.is_over:
            self._batch.step()
        assert not speech.sound or np.isfinite(speech.sound[0]).all()
