"""Samples of voices: each speaks a sentence in its own language."""

import tomllib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from functools import cache
from importlib.resources import files

from media.files.encode import fix_wav_sizes
from pipeline.speech.file import SpeechFileOptions, SpeechFiles, single_text

FORMAT, RATE_HZ = "wav", 24_000
"Format and sample rate of samples: every browser decodes them."

DIGITS = "1, 2, 3, 4, 5."
"Text of a sample in a language without a sentence."

MAX_BYTES = 8 * 1024 * 1024
"Most bytes of kept samples: some sixty, which is more than a person compares."


def sample_text(language: str) -> str:
    """Returns the text of a sample. `language`: ISO 639-1."""
    return _sentences().get(language, DIGITS)


class VoiceSamples:
    """Samples of voices. Each is made at its first request; the least recently used ones are
    dropped beyond `max_bytes`."""

    def __init__(self, speech_files: SpeechFiles, *, max_bytes: int = MAX_BYTES) -> None:
        self._speech_files, self._max_bytes = speech_files, max_bytes
        self._samples: OrderedDict[SpeechFileOptions, bytes] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Size of all kept samples."""
        return self._bytes

    def kept(self, options: SpeechFileOptions) -> bytes | None:
        """Returns the WAV file if it is kept; None if it must be made."""
        if options not in self._samples:
            return None
        self._samples.move_to_end(options)
        return self._samples[options]

    async def make(self, options: SpeechFileOptions, *, keeps: bool = True) -> bytes:
        """Makes the WAV file of a voice, and keeps it if wanted; empty if the voice says nothing.

        Raises OverloadedError, EngineError, RequestError.
        """
        text = single_text(sample_text(options.language))
        made = self._speech_files.file(text, options, FORMAT, RATE_HZ)
        async with aclosing(made.chunks()) as chunks:
            sound = b"".join([chunk async for chunk in chunks])
        if not sound:
            return sound
        sample = fix_wav_sizes(sound)
        if not keeps:
            return sample
        self._bytes += len(sample) - len(self._samples.pop(options, b""))
        self._samples[options] = sample
        while self._bytes > self._max_bytes:
            _, dropped = self._samples.popitem(last=False)
            self._bytes -= len(dropped)
        return sample


@cache
def _sentences() -> Mapping[str, str]:
    text = files(__package__).joinpath("sentences.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
