"""Engine for Pocket TTS of Kyutai: a model of 100 million weights for processors. It speaks in its
own voices, and in the voice of any recording of some seconds.

It runs in a worker with torch. A clause is spoken frame by frame, 80 ms each, so cancelling one
stops the model before its next frame.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from core.audio import AudioFrame, Pcm
from core.errors import EngineError, EngineMissing
from engines.base import TtsInfo, WordMark, WorkerProfile
from engines.runtime.model_files.huggingface import ENVIRONMENT
from engines.tts.shared.synthesis_thread import (
    VOICE_NICE,
    ClauseReceiver,
    SpeechChunk,
    ThreadedSynthesis,
)
from engines.tts.shared.text import check_speed, choose_voice, language_voices

NAME = "pocket"
EXTRA = "pocket"
REQUIRES = {"pocket_tts": "pocket-tts", "torch": "torch"}

CONFIG_FILE, WEIGHTS_FILE = "config.yaml", "model.safetensors"

VOICES_FOLDER = "embeddings"
"Folder of the model's own voices, as in the published repository."

LANGUAGES = {
    "dutch": "nl",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "portuguese": "pt",
    "spanish": "es",
}
"First part of a published model's name (`german_24l`) -> its language (ISO 639-1)."

DIGEST_BYTES = 32
"Length of the digest of the weights, with which the condition of a voice begins."

ModelState = dict[str, dict[str, Any]]
"State of the model after a recording: module name -> tensor name -> tensor."


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `pocket`."""

    path: Annotated[str, Meta(min_length=1)]
    "Folder of one model: model.safetensors, its tokenizer and, for voices of its own, embeddings/."
    model: str = ""
    """Name of the model in the library, such as `english`. Empty: the name of the folder, unless
    config.yaml lies in it."""
    language: str = ""
    "ISO 639-1 code of the language that the model speaks. Empty: by the name of the model."
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    "Sampling temperature; without it, what the model's makers recommend."
    held_voices: Annotated[int, Meta(ge=1, le=256)] = 16
    "Voices that are ready in memory. One takes up to 10 MB; the least used ones are dropped first."
    load_timeout_s: Annotated[float, Meta(gt=0)] = 300.0
    first_audio_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    "Longest wait for the first sound of a clause, and for the condition of a voice."
    audio_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    "Longest wait between two parts of the sound. A slower process counts as hung."

    @property
    def folder(self) -> Path:
        """Folder of the model."""
        return Path(self.path).expanduser()


class PocketTts:
    """A `Tts`, and a `CloningTts`."""

    def __init__(self, info: TtsInfo, model: Any, digest: bytes, settings: Settings) -> None:
        """`model`: the library's, loaded. `digest`: of its weights, DIGEST_BYTES long."""
        self.info = info
        self._model, self._digest, self._settings = model, digest, settings
        self._held: OrderedDict[str, ModelState] = OrderedDict()
        # The library is not safe for several threads, so one thread runs all that it computes.
        self._synthesis = ThreadedSynthesis(info)

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
        checked, and it gives no times of words. `voice` may also be a voice that is held.

        Raises RequestError for an unknown language, voice or speed; PayloadTooLarge for a chunk
        beyond MAX_CHUNK_CHARS; EngineError.
        """
        check_speed(speed)
        language_voices(self.info, language)  # a voice that is held speaks no other language
        state = await self._state(language, voice)

        def synthesise(clause: str, receiver: ClauseReceiver) -> None:
            self._synthesise(clause, state, receiver)

        frames = self._synthesis.speak(text, synthesise, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Returns the condition of the voice in a recording (see `CloningTts`)."""
        return await self._synthesis.run(lambda: self._condition(pcm))

    def hold_voice(self, voice: str, condition: bytes) -> None:
        """Keeps a voice in memory (see `CloningTts`)."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        if condition[:DIGEST_BYTES] != self._digest:
            why = "the voice was made with other weights; record it again"
            raise EngineError("tts", NAME, why)
        try:
            tensors = load(condition[DIGEST_BYTES:])
        except SafetensorError as exc:
            raise EngineError("tts", NAME, f"the condition of the voice is damaged: {exc}") from exc
        state: ModelState = {}
        for path, tensor in tensors.items():
            module, _, name = path.partition("/")
            state.setdefault(module, {})[name] = tensor
        self._hold(voice, state)

    def forget_voice(self, voice: str) -> None:
        """Drops a voice (see `CloningTts`)."""
        self._held.pop(voice, None)

    def _condition(self, pcm: Pcm) -> bytes:
        import torch
        from safetensors.torch import save

        sound = torch.from_numpy(pcm.astype(np.float32) / 32_768)
        state: ModelState = self._model.get_state_for_audio_prompt(sound[None])
        tensors = {
            f"{module}/{name}": tensor.contiguous()
            for module, named in state.items()
            for name, tensor in named.items()
        }
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            why = "these weights make no voice of a recording; those with voice cloning do"
            raise EngineError("tts", NAME, why)
        condition: bytes = self._digest + save(tensors)
        return condition

    async def _state(self, language: str, voice: str | None) -> ModelState:
        """Returns the state of the model for a voice. The state of one of the model's own voices is
        read from its file at the first use. Raises RequestError."""
        if voice is None or voice not in self._held:
            voice = choose_voice(self.info, language, voice)
        held = self._held.get(voice)
        if held is None:
            file = self._settings.folder / VOICES_FOLDER / f"{voice}.safetensors"
            held = await self._synthesis.run(lambda: self._read(file))
        self._hold(voice, held)
        return held

    def _read(self, file: Path) -> ModelState:
        state: ModelState = self._model.get_state_for_audio_prompt(file)
        return state

    def _hold(self, voice: str, state: ModelState) -> None:
        self._held[voice] = state
        self._held.move_to_end(voice)
        while len(self._held) > self._settings.held_voices:
            self._held.popitem(last=False)

    def _synthesise(self, clause: str, state: ModelState, receiver: ClauseReceiver) -> None:
        """Synthesises one clause; runs in the synthesis thread. The library copies `state`."""
        stop = Event()
        receiver.on_cancel(stop.set)
        # A cancelled stream is read to its end, which comes with the next frame. The library's own
        # threads have ended then.
        for sound in self._model.generate_audio_stream(state, clause, stop=stop):
            if not receiver.is_cancelled:
                receiver.put(SpeechChunk(_to_pcm(sound.numpy())))


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the environment, time limits and niceness of the worker process."""
    return WorkerProfile(
        ENVIRONMENT,
        settings.load_timeout_s,
        settings.first_audio_timeout_s,
        settings.audio_timeout_s,
        nice=VOICE_NICE,
    )


def create(settings: Settings) -> PocketTts:
    """Loads the model, which takes seconds. Raises EngineMissing if a file is missing, EngineError
    if the language of the model is not known."""
    weights = settings.folder / WEIGHTS_FILE
    if not weights.is_file():
        raise EngineMissing("tts", NAME, f"no {WEIGHTS_FILE} in {settings.folder}")
    logging.getLogger("pocket_tts").setLevel(logging.WARNING)  # it reports every step
    name = settings.model or settings.folder.absolute().name
    model = _load(settings, name)
    language = settings.language or LANGUAGES.get(name.partition("_")[0], "")
    if not language:
        raise EngineError("tts", NAME, f"the language of {name!r} is not known: set language")
    voices = sorted(file.stem for file in (settings.folder / VOICES_FOLDER).glob("*.safetensors"))
    with weights.open("rb") as file:
        digest = file_digest(file, "sha256").digest()
    info = TtsInfo(NAME, model.sample_rate, {language: tuple(voices)}, can_clone=True)
    return PocketTts(info, model, digest, settings)


def _load(settings: Settings, name: str) -> Any:
    """Returns the library's model with the files of the folder: its own configurations name files
    on a server instead."""
    from pocket_tts import TTSModel
    from pocket_tts.utils.config import CONFIGS_DIR, load_config

    file = settings.folder / CONFIG_FILE
    if settings.model or not file.is_file():
        file = CONFIGS_DIR / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(one.stem for one in CONFIGS_DIR.glob("*.yaml")))
        raise EngineMissing("tts", NAME, f"no {CONFIG_FILE}, and no model {name!r} of: {known}")
    config: dict[str, Any] = load_config(file).model_dump(mode="json")
    tokens = config["flow_lm"]["lookup_table"]
    tokenizer = settings.folder / tokens["tokenizer_path"].partition("@")[0].rpartition("/")[2]
    if not tokenizer.is_file():
        raise EngineMissing("tts", NAME, f"no {tokenizer.name} in {settings.folder}")
    tokens["tokenizer_path"] = str(tokenizer.absolute())
    config["weights_path"] = str((settings.folder / WEIGHTS_FILE).absolute())
    config["weights_path_without_voice_cloning"] = None
    config["flow_lm"]["weights_path"] = config["mimi"]["weights_path"] = None
    with TemporaryDirectory() as folder:
        changed = Path(folder) / CONFIG_FILE
        changed.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML, too
        return TTSModel.load_model(config=changed, temp=settings.temperature)


def _to_pcm(sound: Any) -> Pcm:
    pcm: Pcm = np.clip(sound * 32_767, -32_768, 32_767).astype(np.int16)
    return pcm
