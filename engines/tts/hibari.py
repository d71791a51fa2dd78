"""Engine for hibari: small neural voices for English, whose Python package contains their weights.

A voice has 8 MB and speaks more than a hundred times faster than real time on one core. It knows
English only; the server takes eSpeak for other languages, and for text in another script. A clause
is synthesised sentence by sentence. A cancelled clause ends in the middle of the model's run.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from core.audio import AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.errors import ConfigError, EngineError, EngineMissing
from engines.base import TtsInfo, WordMark, WorkerProfile
from engines.runtime.onnx_file import operator_inputs, with_output
from engines.tts.alignment import Phoneme, spoken_words
from engines.tts.cancellable_onnx import CancellableOnnxSession
from engines.tts.synthesis_thread import (
    VOICE_NICE,
    ClauseReceiver,
    SpeechChunk,
    ThreadedSynthesis,
    WordTiming,
)
from engines.tts.text import checked_speed, chosen_voice

if TYPE_CHECKING:
    from hibari import Hibari

REQUIRES = {"hibari": "hibari-tts"}

RATE_HZ = 24_000
LANGUAGE = "en"

BUNDLED = "heart"
"The voice that comes with the package."

MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
"Limits of the library for the speed."

LAST_LATIN = 0x24F
"Last letter of the Unicode blocks of Latin letters. The voice cannot read letters beyond them."

KEPT_LEAD_MS = 30.0
"""Longest silence before a sentence, in ms. The model begins with some 350 ms of it, which would
delay every answer."""
AUDIBLE = 0.005
"Smallest absolute value of a sample that counts as sound; full scale is 1."

NOISE_SEED = 0
"Seed of the noise in breath sounds: equal texts give equal samples."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `hibari`."""

    models: tuple[str, ...] = ()
    "Paths of the `.onnx` files of further voices. Their names must be those of the package's list."
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    "Factor on the speed of every request."
    threads: Annotated[int, Meta(ge=1, le=16)] = 1
    "Clauses of different sessions that are synthesised at the same time."


class HibariVoice:
    """One voice of the package. Its runs can be cancelled, and report the durations of phonemes."""

    def __init__(self, model: "Hibari") -> None:
        from hibari.dsp import synth
        from onnxruntime import InferenceSession, SessionOptions

        data = Path(model.model_path).read_bytes()
        # The durations, in units of a fixed length, are what the model sums up to place phonemes.
        ((durations, *_),) = operator_inputs(data, "CumSum")
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = InferenceSession(
            with_output(data, durations), options, providers=["CPUExecutionProvider"]
        )
        self._session = CancellableOnnxSession(session)
        self._model = model
        self._synth: Callable[..., npt.NDArray[np.float32]] = synth
        model.sess = session  # instead of one without durations
        model.g2p("Hello.")  # loads its dictionaries

    def synthesise(self, clause: str, factor: float, listener: ClauseReceiver) -> None:
        """Synthesises one clause; runs in the synthesis thread. `factor`: speed, 1 is normal.

        Raises EngineError for a text in another script.
        """
        if any(letter.isalpha() and ord(letter) > LAST_LATIN for letter in clause):
            raise EngineError("tts", "hibari", "reads Latin letters only, and the text has others")
        begin, at_ms = 0, 0.0
        with self._session.heard_by(listener):
            for sentence in self._model.split_sentences(clause):
                begin = clause.index(sentence, begin)
                pcm, spoken = self._sentence(sentence, factor)
                words = (
                    WordTiming(begin + word.end_char, at_ms + word.start_ms, at_ms + word.end_ms)
                    for word in spoken_words(sentence, spoken)
                )
                if not listener.put(SpeechChunk(pcm, tuple(words))):
                    return
                begin += len(sentence)
                at_ms += samples_to_ms(len(pcm), RATE_HZ)

    def _sentence(self, sentence: str, factor: float) -> tuple[Pcm, list[list[Phoneme]]]:
        """Returns the samples of a sentence, and the phonemes of its parts with durations."""
        noise = np.random.default_rng(NOISE_SEED)
        sound, spoken = [np.zeros(0, np.float32)], list[list[Phoneme]]()
        for phonemes in self._model.phonemize(sentence):
            known = [phoneme for phoneme in phonemes if phoneme in self._model.vocab]
            if not any(map(str.isalpha, known)):
                continue  # punctuation alone
            *spectrum, durations = self._session.run(
                None,
                {
                    "ids": np.array([self._model.ids(phonemes)], np.int64),
                    "speed": np.array([factor], np.float32),
                },
            )
            samples = self._synth(*(part[0] for part in spectrum), noise)
            unit_ms = samples_to_ms(len(samples), RATE_HZ) / int(durations.sum())
            cut = _silent_lead(samples, unit_ms * int(durations[0]))
            sound.append(samples[cut:])
            names = ["", *known, ""]  # the model's own pause before and after
            timed = [(name, unit_ms * int(n)) for name, n in zip(names, durations, strict=True)]
            timed[0] = ("", timed[0][1] - samples_to_ms(cut, RATE_HZ))
            spoken.append(timed)
        pcm = np.clip(np.concatenate(sound) * 32_767, -32_768, 32_767).astype(np.int16)
        return pcm, spoken


def _silent_lead(samples: npt.NDArray[np.float32], pause_ms: float) -> int:
    """Returns how many samples of the pause at the beginning can be left out."""
    pause = np.abs(samples[: ms_to_samples(pause_ms, RATE_HZ)])
    silent = int(np.argmax(pause > AUDIBLE)) if pause.max(initial=0.0) > AUDIBLE else len(pause)
    return max(0, silent - ms_to_samples(KEPT_LEAD_MS, RATE_HZ))


class HibariTts:
    """A `Tts` with hibari's voices."""

    def __init__(self, voices: Mapping[str, HibariVoice], settings: Settings) -> None:
        self.info = TtsInfo("hibari", RATE_HZ, {LANGUAGE: tuple(voices)}, has_word_times=True)
        self._voices = voices
        self._settings = settings
        self._synthesis = ThreadedSynthesis(self.info, threads=settings.threads)

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
        beyond MAX_CHUNK_CHARS; EngineError, also for a text in another script than Latin.
        """
        spoken_by = self._voices[chosen_voice(self.info, language, voice)]
        wanted = checked_speed(speed) * self._settings.speed
        factor = min(max(wanted, MIN_FACTOR), MAX_FACTOR)

        def synthesise(clause: str, listener: ClauseReceiver) -> None:
            spoken_by.synthesise(clause, factor, listener)

        frames = self._synthesis.speak(text, synthesise, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame


def worker_profile(settings: Settings) -> WorkerProfile:
    """Puts the engine into a worker process: numpy and the model keep the interpreter busy for
    longer than a packet of sound may wait."""
    return WorkerProfile(nice=VOICE_NICE)


def create(settings: Settings) -> HibariTts:
    """Loads the voices, half a second each. Raises EngineMissing if a file is missing or damaged;
    ConfigError for a file that is no voice of the package's list."""
    from hibari import Hibari
    from hibari.voices import VOICES

    files = {one["file"]: name for name, one in VOICES.items() if not one.get("bundled")}
    wanted: dict[str, str | None] = {BUNDLED: None}
    for given in settings.models:
        path = Path(given).expanduser()
        if path.name not in files:
            raise ConfigError(
                f"tts.options.models: {path.name} is no voice of hibari; there are:"
                f" {', '.join(sorted(files))}"
            )
        if not path.is_file():
            raise EngineMissing("tts", "hibari", f"no file {given}")
        wanted[files[path.name]] = str(path)
    try:
        voices = {name: HibariVoice(Hibari(name, model=path)) for name, path in wanted.items()}
    except Exception as exc:  # onnxruntime: no public base class
        raise EngineMissing("tts", "hibari", f"does not load: {exc}") from exc
    return HibariTts(voices, settings)
