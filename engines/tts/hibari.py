"""Engine for hibari: small neural voices for English, whose Python package contains their weights.

A voice has 8 MB and speaks more than a hundred times faster than real time on one core. It knows
English only; a clause in another language or script is refused, and eSpeak speaks it instead.
A clause is synthesised sentence by sentence. Cancelling a clause stops the model during its run.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from core.audio import AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.errors import ConfigError, EngineMissing, RequestError
from engines.base import TtsInfo, WordMark, WorkerProfile
from engines.runtime.model_files.onnx_file import operator_inputs, with_output
from engines.tts.shared.alignment import Phoneme, word_timings
from engines.tts.shared.cancellable_onnx import CancellableOnnxSession
from engines.tts.shared.synthesis_thread import (
    VOICE_NICE,
    ClauseReceiver,
    SpeechChunk,
    ThreadedSynthesis,
    WordTiming,
)
from engines.tts.shared.text import UNSPEAKABLE, check_speed, choose_voice

REQUIRES = {"hibari": "hibari-tts"}

RATE_HZ = 24_000
"Sample rate of the voice."

LOUDNESS_LUFS = -26.0
"Loudness of the voice of the package. The others were not measured."

LANGUAGE = "en"
"The only language of the voice."

NOUN = "NN"
"Part of speech with which a word is looked up if its own is not known."

BUNDLED_VOICE = "heart"
"The voice that comes with the package."

MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
"Limits of the library for the speed."

LAST_LATIN = 0x24F
"Last letter of the Unicode blocks of Latin letters. The voice cannot read letters beyond them."

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
"A word without digits, as the dictionary has it."

MIN_FOREIGN_WORDS = 4
"Fewest words of a clause that may be refused as not English. A shorter one may be names alone."

FOREIGN_SHARE = 0.5
"""Smallest share of unknown words with which a clause counts as not English. This detects four in
five sentences in German, French, Spanish, Italian, Dutch and Polish. English prose with names stays
below this share; English lists of file names do not."""

KEPT_LEAD_MS = 30.0
"""Longest silence before a sentence, in ms. The model produces some 350 ms of it, which would delay
every answer."""
CLAUSE_TIMEOUT_S = 5.0
"""Longest wait for the next sentence in seconds; then the process counts as hung. The longest
clause takes 0.2 s of a core."""

MIN_AUDIBLE_SAMPLE = 0.005
"Smallest absolute value of a sample that counts as sound; full scale is 1."

WARM_UP = "Hello, Zwickl."
"Sentence that is synthesised when a voice is loaded; the second word is in no dictionary."

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

    def __init__(self, name: str, file: Path) -> None:
        """Loads a voice. `name`: from the package's list; `file`: its model."""
        from hibari import Hibari
        from hibari.dsp import synth
        from hibari.g2p import Context

        data = file.read_bytes()
        # The model adds up the durations to place the phonemes, so they are the input of CumSum.
        # Their unit has a fixed length.
        ((durations, *_),) = operator_inputs(data, "CumSum")
        with TemporaryDirectory() as folder:  # hibari takes a path only
            with_durations = Path(folder) / file.name
            with_durations.write_bytes(with_output(data, durations))
            model = Hibari(name, model=str(with_durations))
        self._session = CancellableOnnxSession(model.sess)
        self._model = model
        self._synth: Callable[..., npt.NDArray[np.float32]] = synth
        self._context = Context()
        # Loads the dictionaries, and the network for unknown words.
        self._synthesise_sentence(WARM_UP, 1.0)

    def synthesise(self, clause: str, factor: float, receiver: ClauseReceiver) -> None:
        """Synthesises one clause; runs in the synthesis thread. `factor`: speed, 1 is normal.

        Raises RequestError for a text in another script or language.
        """
        if any(letter.isalpha() and ord(letter) > LAST_LATIN for letter in clause):
            raise RequestError("hibari reads Latin letters only", code=UNSPEAKABLE)
        if self._is_foreign(clause):
            raise RequestError("hibari reads English only", code=UNSPEAKABLE)
        begin, base_ms = 0, 0.0
        with self._session.cancellable_by(receiver):
            for sentence in self._model.split_sentences(clause):
                begin = clause.index(sentence, begin)
                pcm, parts = self._synthesise_sentence(sentence, factor)
                words = (
                    WordTiming(
                        begin + word.end_char, base_ms + word.start_ms, base_ms + word.end_ms
                    )
                    for word in word_timings(sentence, parts)
                )
                if not receiver.put(SpeechChunk(pcm, tuple(words))):
                    return
                begin += len(sentence)
                base_ms += samples_to_ms(len(pcm), RATE_HZ)

    def _is_foreign(self, clause: str) -> bool:
        """Returns True if the dictionary has too few of the words for an English clause."""
        words = WORD.findall(clause)
        unknown = sum(not self._is_known(word) for word in words)
        return len(words) >= MIN_FOREIGN_WORDS and unknown >= FOREIGN_SHARE * len(words)

    def _is_known(self, word: str) -> bool:
        """Returns True if the dictionary has a word or its stem, as written or in lower case."""
        look_up = self._model.g2p.lexicon.get_word
        entries = (look_up(form, NOUN, None, self._context)[0] for form in (word, word.lower()))
        return any(phonemes is not None for phonemes in entries)

    def _synthesise_sentence(self, sentence: str, factor: float) -> tuple[Pcm, list[list[Phoneme]]]:
        """Returns the samples of a sentence, and the phonemes of its parts with durations."""
        noise = np.random.default_rng(NOISE_SEED)
        sound, parts = [np.zeros(0, np.float32)], list[list[Phoneme]]()
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
            parts.append(timed)
        pcm = np.clip(np.concatenate(sound) * 32_767, -32_768, 32_767).astype(np.int16)
        return pcm, parts


def _silent_lead(samples: npt.NDArray[np.float32], pause_ms: float) -> int:
    """Returns the number of silent samples at the beginning that can be left out. `pause_ms`:
    duration of the pause there, as the model gives it."""
    is_audible = np.abs(samples[: ms_to_samples(pause_ms, RATE_HZ)]) > MIN_AUDIBLE_SAMPLE
    silent = int(np.argmax(is_audible)) if is_audible.any() else len(is_audible)
    return max(0, silent - ms_to_samples(KEPT_LEAD_MS, RATE_HZ))


class HibariTts:
    """A `Tts` with hibari's voices."""

    def __init__(self, voices: Mapping[str, HibariVoice], settings: Settings) -> None:
        from hibari.voices import VOICES

        self.info = TtsInfo(
            "hibari",
            RATE_HZ,
            {LANGUAGE: tuple(voices)},
            has_word_times=True,
            genders={name: VOICES[name]["gender"] for name in voices},
            loudness_lufs=LOUDNESS_LUFS,
        )
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

        Raises RequestError for an unknown language, voice or speed, and UNSPEAKABLE for a clause in
        another script or language; PayloadTooLarge for a chunk beyond MAX_CHUNK_CHARS; EngineError.
        """
        chosen = self._voices[choose_voice(self.info, language, voice)]
        requested_factor = check_speed(speed) * self._settings.speed
        factor = min(max(requested_factor, MIN_FACTOR), MAX_FACTOR)

        def synthesise(clause: str, receiver: ClauseReceiver) -> None:
            chosen.synthesise(clause, factor, receiver)

        frames = self._synthesis.speak(text, synthesise, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the profile of a worker process. In the gateway, numpy and the model would keep the
    interpreter busy for longer than a packet of sound may wait."""
    return WorkerProfile(
        nice=VOICE_NICE, first_chunk_timeout_s=CLAUSE_TIMEOUT_S, chunk_timeout_s=CLAUSE_TIMEOUT_S
    )


def create(settings: Settings) -> HibariTts:
    """Loads the voices, half a second each. Raises EngineMissing if a file is missing or damaged;
    ConfigError for a file that is not in the package's list of voices."""
    from hibari.voices import VOICES, voice_path

    names = {voice["file"]: name for name, voice in VOICES.items() if not voice.get("bundled")}
    files: dict[str, str | None] = {BUNDLED_VOICE: None}
    for model in settings.models:
        path = Path(model).expanduser()
        if path.name not in names:
            raise ConfigError(
                f"tts.options.models: {path.name} is not a voice of hibari; there are:"
                f" {', '.join(sorted(names))}"
            )
        if not path.is_file():
            raise EngineMissing("tts", "hibari", f"no file {model}")
        files[names[path.name]] = str(path)
    voices: dict[str, HibariVoice] = {}
    for name, file in files.items():
        try:
            voices[name] = HibariVoice(name, Path(file or voice_path(name)))
        except Exception as exc:  # onnxruntime: no public base class
            owner = file or f"the file of the voice {name} in the package"
            raise EngineMissing("tts", "hibari", f"{owner} does not load: {exc}") from exc
    return HibariTts(voices, settings)
