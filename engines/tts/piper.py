"""Engine for Piper: small neural voices, one ONNX file each, faster than real time on a small CPU.

Only this engine uses Piper's GPL-3 code. Clauses are synthesised sentence by sentence. Cancelling a
clause stops the model during its run.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from msgspec import Meta, Struct

from core.audio import AudioFrame
from core.errors import ConfigError, EngineMissing
from engines.base import TtsInfo, WordMark, WorkerProfile
from engines.tts.shared.alignment import Phoneme, word_timings
from engines.tts.shared.cancellable_onnx import CancellableOnnxSession
from engines.tts.shared.synthesis_thread import (
    VOICE_NICE,
    ClauseReceiver,
    SpeechChunk,
    ThreadedSynthesis,
)
from engines.tts.shared.text import check_speed, choose_voice

if TYPE_CHECKING:
    from piper import PiperVoice, SynthesisConfig

EXTRA = "piper"
REQUIRES = {"piper": "piper-tts"}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `piper`."""

    model: str = ""
    "A voice's `.onnx` file, with its `.onnx.json` in the same folder; or a folder of such files."
    speed: Annotated[float, Meta(ge=0.5, le=2.5)] = 1.0
    "Factor on the speed of every request."
    threads: Annotated[int, Meta(ge=1, le=16)] = 1
    "Clauses of different sessions that are synthesised at the same time."
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class _PiperVoice:
    """One speaker of one loaded file."""

    model: "PiperVoice"
    session: CancellableOnnxSession
    "Session of the model, shared by all speakers of the file."
    speaker_id: int | None
    has_times: bool
    "True: the model gives the times of phonemes."


class PiperTts:
    """A `Tts` with Piper's voices."""

    def __init__(
        self, info: TtsInfo, voices: Mapping[str, _PiperVoice], settings: Settings
    ) -> None:
        self.info = info
        self._voices = voices
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
        chosen = self._voices[choose_voice(self.info, language, voice)]
        factor = check_speed(speed) * self._settings.speed
        has_times = on_word is not None and self.info.has_word_times

        def synthesise(clause: str, receiver: ClauseReceiver) -> None:
            with chosen.session.cancellable_by(receiver):
                (_synthesise_timed if has_times else _synthesise_plain)(
                    chosen, clause, factor, receiver
                )

        frames = self._synthesis.speak(text, synthesise, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame


def _synthesise_plain(
    voice: _PiperVoice, clause: str, factor: float, receiver: ClauseReceiver
) -> None:
    """Synthesises a clause sentence by sentence: each is played while the next is synthesised."""
    for chunk in voice.model.synthesize(clause, _config(voice, factor)):
        if not receiver.put(SpeechChunk(chunk.audio_int16_array)):
            return


def _synthesise_timed(
    voice: _PiperVoice, clause: str, factor: float, receiver: ClauseReceiver
) -> None:
    """Synthesises a clause as a whole, because word times need the times of all its phonemes."""
    config = _config(voice, factor)
    sentences, parts = list[list[Phoneme]](), []
    for chunk in voice.model.synthesize(clause, config, include_alignments=True):
        parts.append(chunk.audio_int16_array)
        total_ms = 1000 * len(parts[-1]) / chunk.sample_rate
        known = chunk.phoneme_alignments
        sentences.append(
            [("a", total_ms)]
            if known is None
            else [
                (phoneme.phoneme, 1000 * phoneme.num_samples / chunk.sample_rate)
                for phoneme in known
            ]
        )
    if parts:
        receiver.put(SpeechChunk(np.concatenate(parts), word_timings(clause, sentences)))


def _config(voice: _PiperVoice, factor: float) -> "SynthesisConfig":
    from piper import SynthesisConfig

    return SynthesisConfig(
        speaker_id=voice.speaker_id, length_scale=voice.model.config.length_scale / factor
    )


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the profile of a worker process. In the gateway, the model would keep the interpreter
    busy for longer than a packet of sound may wait."""
    return WorkerProfile(nice=VOICE_NICE)


def create(settings: Settings) -> PiperTts:
    """Loads all voices, some 60 MB each.

    Raises EngineMissing for missing or damaged files, ConfigError for voices of different rates.
    """
    from piper import PiperVoice

    voices: dict[str, _PiperVoice] = {}
    languages: dict[str, list[str]] = {}
    rates: dict[str, int] = {}
    for path in _files(settings.model):
        description = _read_description(path)
        model = _load(PiperVoice, path, settings)
        has_times = len(model.session.get_outputs()) > 1
        session = CancellableOnnxSession(model.session)
        model.session = cast("Any", session)
        rates[path.name] = model.config.sample_rate
        for name, speaker_id in _speakers(path.stem, description).items():
            voices[name] = _PiperVoice(model, session, speaker_id, has_times)
            languages.setdefault(_language(description), []).append(name)
    if len(set(rates.values())) > 1:
        differences = ", ".join(f"{name} has {rate} Hz" for name, rate in rates.items())
        raise ConfigError(f"tts.piper: all voices must have the same sample rate; {differences}")
    info = TtsInfo(
        "piper",
        next(iter(rates.values())),
        {language: tuple(names) for language, names in languages.items()},
        has_word_times=all(voice.has_times for voice in voices.values()),
    )
    return PiperTts(info, voices, settings)


def _files(model: str) -> list[Path]:
    """Returns the paths of the `.onnx` files. Raises EngineMissing without files or their JSON."""
    if not model:
        raise EngineMissing("tts", "piper", "no voice: set model to an .onnx file or a folder")
    path = Path(model).expanduser()
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
    if not files:
        raise EngineMissing("tts", "piper", f"no .onnx file in {path}")
    for voice_file in files:
        for needed in (voice_file, Path(f"{voice_file}.json")):
            if not needed.is_file():
                raise EngineMissing("tts", "piper", f"no file {needed}")
    return files


def _read_description(path: Path) -> Mapping[str, Any]:
    """Returns the content of a voice's `.onnx.json`. Raises EngineMissing if it is unreadable."""
    try:
        description = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise EngineMissing("tts", "piper", f"{path.name}.json cannot be read: {exc}") from exc
    if not isinstance(description, dict):
        raise EngineMissing("tts", "piper", f"{path.name}.json does not describe a voice")
    return description


def _load(loader: "type[PiperVoice]", path: Path, settings: Settings) -> "PiperVoice":
    """Loads one file. Raises EngineMissing if that fails."""
    # Piper needs the onnx package for times of phonemes, unless they are an output of the model.
    try:
        return loader.load(
            path, use_cuda=settings.cuda, include_alignments=find_spec("onnx") is not None
        )
    except (KeyError, ValueError, TypeError, OSError) as exc:
        why = f"{path.name}.json lacks an entry or has a wrong one: {exc}"
        raise EngineMissing("tts", "piper", why) from exc
    except Exception as exc:  # onnxruntime and protobuf: no public base class
        raise EngineMissing("tts", "piper", f"{path.name} does not load: {exc}") from exc


def _language(description: Mapping[str, Any]) -> str:
    """Returns a voice's language (ISO 639-1). Old descriptions have only eSpeak's name for it."""
    entry = description.get("language") or {}
    language = entry.get("family") or entry.get("code") or description["espeak"]["voice"]
    return str(language).replace("_", "-").partition("-")[0].lower()


def _speakers(stem: str, description: Mapping[str, Any]) -> Mapping[str, int | None]:
    """Returns voice name -> speaker id, the default speaker first.

    The name is the file's stem (`en_US-lessac-medium`); `stem/speaker` if there are several.
    """
    speakers: Mapping[str, int] = description.get("speaker_id_map") or {}
    if len(speakers) < 2:
        return {stem: None}
    default = description.get("default_speaker_id", 0)
    ranked = sorted(speakers.items(), key=lambda item: (item[1] != default, item[1]))
    return {f"{stem}/{name}": number for name, number in ranked}
