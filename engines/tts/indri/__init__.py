"""Engine for Indri: a language model writes codes of sound, and the codec Mimi makes it audible.

The checkpoints `11mlabs/indri-0.1-124m-tts` and `-350m-tts` have this form. Several clauses are
written at once, and the sound begins after the first frame. It runs in a worker with torch.
"""

from typing import TYPE_CHECKING

from core.errors import EngineError
from engines.base import TtsInfo, WorkerProfile
from engines.runtime.model_files.huggingface import ENVIRONMENT
from engines.tts.indri.chunks import MAX_CHUNK_FRAMES
from engines.tts.indri.settings import (
    NAME,
    PUBLISHED,
    TOKENIZER_FILE,
    Settings,
    choose_voices,
    read_vocabulary,
)
from engines.tts.indri.token_layout import CODEBOOK_SIZE, CODEBOOKS, LayoutError, TokenLayout
from engines.tts.shared.synthesis_thread import VOICE_NICE

if TYPE_CHECKING:
    from engines.tts.indri.engine import IndriTts

__all__ = ["EXTRA", "REQUIRES", "Settings", "create", "worker_profile"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the environment, time limits and niceness of the worker process."""
    return WorkerProfile(
        ENVIRONMENT,
        settings.load_timeout_s,
        settings.first_audio_timeout_s,
        settings.audio_timeout_s,
        nice=VOICE_NICE,
    )


def create(settings: Settings) -> "IndriTts":
    """Loads language model and codec, which takes seconds. Raises EngineMissing for missing files,
    EngineError for files of another model, ConfigError for an unknown voice."""
    import torch
    from tokenizers import Tokenizer

    from engines.codec import mimi
    from engines.tts.indri.checkpoint import load_backend
    from engines.tts.indri.engine import IndriTts
    from engines.tts.indri.speech_batch import SpeechBatch

    vocabulary = read_vocabulary(settings.folder)
    tokenizer = Tokenizer.from_file(str(settings.folder / TOKENIZER_FILE))
    try:
        layout = TokenLayout.read(tokenizer, vocabulary)
    except LayoutError as exc:
        raise EngineError("tts", NAME, f"{settings.path}: {exc}") from exc
    voices = choose_voices(layout.speakers, settings.voices)
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    codec = mimi.create(
        mimi.Settings(model=settings.codec, device=device, threads=settings.threads)
    )
    if codec.info.codebook_size != CODEBOOK_SIZE or CODEBOOKS not in codec.info.codebooks:
        found = f"{codec.info.codebook_size} codes in {codec.info.codebooks} codebooks"
        needed = f"{CODEBOOK_SIZE} codes in {CODEBOOKS} codebooks"
        raise EngineError("tts", NAME, f"the codec in {settings.codec} has {found}, not {needed}")
    backend = load_backend(
        settings.folder, layout, slots=settings.slots, device=device, dtype=settings.dtype
    )
    info = TtsInfo(
        NAME,
        codec.info.rate_hz,
        dict.fromkeys(settings.languages, voices),
        genders={name: PUBLISHED[name] for name in voices if name in PUBLISHED},
    )
    streams = codec.open_streams(settings.slots, max_frames=MAX_CHUNK_FRAMES)
    batch = SpeechBatch(backend, streams, layout)
    tts = IndriTts(info, batch, layout, tokenizer, backend.context, settings)
    tts.warm_up()
    return tts
