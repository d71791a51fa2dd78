"""Engine for Kokoro: a neural model of 82 million weights with some fifty voices, eight languages.

A clause is synthesised as a whole, in a fraction of its duration on a desktop CPU. Cancelling a
clause stops the model during its run.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from msgspec import Meta, Struct

from core.audio import AudioFrame
from core.errors import EngineMissing
from engines.base import Gender, TtsInfo, WordMark, WorkerProfile
from engines.tts.shared.alignment import Phoneme, word_timings
from engines.tts.shared.cancellable_onnx import CancellableOnnxSession
from engines.tts.shared.synthesis_thread import (
    VOICE_NICE,
    ClauseReceiver,
    SpeechChunk,
    ThreadedSynthesis,
    WordTiming,
)
from engines.tts.shared.text import check_speed, choose_voice

if TYPE_CHECKING:
    from kokoro_onnx import Kokoro

EXTRA = "kokoro"
REQUIRES = {"kokoro_onnx": "kokoro-onnx"}

RATE_HZ = 24_000
"Sample rate of all voices."

LANGUAGES = {
    "a": ("en", "en-us"),
    "b": ("en", "en-gb"),
    "e": ("es", "es"),
    "f": ("fr", "fr-fr"),
    "h": ("hi", "hi"),
    "i": ("it", "it"),
    "p": ("pt", "pt-br"),
}
"""First letter of a voice's name -> its language (ISO 639-1), and the phonemizer's name for it.
Japanese and Chinese voices need other phonemizers: the model does not know eSpeak's phonemes."""

GENDERS: Mapping[str, Gender] = {"f": "female", "m": "male"}
"Second letter of a voice's name -> its gender."

PREFERRED_VOICES = ("af_heart", "ef_dora", "ff_siwis", "hf_alpha", "if_sara", "pf_dora")
"Default voice of each language, if the file of voices has it."

MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
"Limits of the library for the speed."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `kokoro`."""

    model: str = ""
    "Path of the `.onnx` file."
    voices: str = ""
    "Path of the file of voices, `voices-v1.0.bin`."
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    "Factor on the speed of every request."
    threads: Annotated[int, Meta(ge=1, le=16)] = 1
    "Clauses of different sessions that are synthesised at the same time."


class KokoroTts:
    """A `Tts` with Kokoro's voices."""

    def __init__(self, info: TtsInfo, model: "Kokoro", settings: Settings) -> None:
        self.info = info
        self._model = model
        self._session = CancellableOnnxSession(model.sess)
        model.sess = cast("Any", self._session)
        self._settings = settings
        self._synthesis = ThreadedSynthesis(info, threads=settings.threads)

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech (see `Tts.speak`).

        Raises RequestError for an unknown language, voice or speed; PayloadTooLarge for a chunk
        beyond MAX_CHUNK_CHARS; EngineError.
        """
        name = choose_voice(self.info, language, voice)
        requested_factor = check_speed(speed) * self._settings.speed
        factor = min(max(requested_factor, MIN_FACTOR), MAX_FACTOR)

        def synthesise(clause: str, receiver: ClauseReceiver) -> None:
            with self._session.cancellable_by(receiver):
                self._synthesise(clause, name, factor, receiver)

        frames = self._synthesis.speak(text, synthesise, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame

    def _synthesise(self, clause: str, voice: str, factor: float, receiver: ClauseReceiver) -> None:
        """Synthesises one clause; runs in the synthesis thread."""
        phonemizer = LANGUAGES[voice[0]][1]
        phonemes = self._model.tokenizer.phonemize(clause, phonemizer)
        if not phonemes.strip(' .,;:!?—…"()'):
            return  # text in another script, which this voice cannot speak
        samples, _, timings = self._model.create_timed(
            phonemes, voice, factor, phonemizer, is_phonemes=True
        )
        pcm = np.clip(samples * 32767, -32768, 32767).astype(np.int16)
        words: tuple[WordTiming, ...] = ()
        if self.info.has_word_times:
            words = word_timings(
                clause, [_phonemes([(t.phoneme, t.start, t.end) for t in timings])]
            )
        receiver.put(SpeechChunk(pcm, words))


def _phonemes(timings: list[tuple[str, float, float]]) -> list[Phoneme]:
    """Returns phonemes with durations. `timings`: (phoneme, start, end) in s; gaps between them
    become empty phonemes."""
    phonemes: list[Phoneme] = []
    position_s = 0.0
    for phoneme, start_s, end_s in timings:
        if start_s > position_s:
            phonemes.append(("", 1000 * (start_s - position_s)))
        phonemes.append((phoneme, 1000 * (end_s - max(start_s, position_s))))
        position_s = end_s
    return phonemes


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the profile of a worker process. In the gateway, the model would keep the interpreter
    busy for longer than a packet of sound may wait."""
    return WorkerProfile(nice=VOICE_NICE)


def create(settings: Settings) -> KokoroTts:
    """Loads model and voices, 90 to 330 MB. Raises EngineMissing if a file is missing or
    damaged."""
    from kokoro_onnx import Kokoro

    for name, file in (("model", settings.model), ("voices", settings.voices)):
        if not file:
            raise EngineMissing("tts", "kokoro", f"no weights: set {name} to its file")
        if not Path(file).expanduser().is_file():
            raise EngineMissing("tts", "kokoro", f"no file {file}")
    try:
        model = Kokoro(
            str(Path(settings.model).expanduser()), str(Path(settings.voices).expanduser())
        )
        names = model.get_voices()
    except Exception as exc:  # onnxruntime, numpy and the phonemizer: no common base class
        raise EngineMissing("tts", "kokoro", f"does not load: {exc}") from exc
    info = TtsInfo(
        "kokoro",
        RATE_HZ,
        _by_language(names),
        has_word_times=model.has_timings,
        genders={name: GENDERS[name[1:2]] for name in names if name[1:2] in GENDERS},
    )
    if not info.voices:
        raise EngineMissing("tts", "kokoro", f"{settings.voices} has no voice of a known language")
    return KokoroTts(info, model, settings)


def _by_language(names: list[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns language -> voices, the preferred one first, American voices before British ones."""
    voices: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (name not in PREFERRED_VOICES, name)):
        if name[:1] in LANGUAGES:
            voices.setdefault(LANGUAGES[name[0]][0], []).append(name)
    return {language: tuple(names) for language, names in voices.items()}
