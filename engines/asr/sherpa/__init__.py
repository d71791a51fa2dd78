"""Engine for the models of sherpa-onnx: streaming transducers and CTC models, and models of whole
utterances such as Parakeet, SenseVoice and Moonshine.

The library ends its process when it is given files that it does not expect. So the files are
checked before it sees them, and it runs in a worker process like every recogniser.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from core.errors import ConfigError
from engines.asr.sherpa.hotwords import as_vocabulary
from engines.asr.sherpa.model_folder import AUTO, SherpaModel, read_model
from engines.asr.sherpa.offline_model import OfflineSherpa
from engines.asr.sherpa.punctuation import PunctuatedModel, read_punctuation_file
from engines.asr.sherpa.releases import find_release
from engines.asr.sherpa.streaming_model import StreamingSherpa
from engines.base import AsrInfo, AsrModel

EXTRA = "sherpa"
REQUIRES = {"sherpa_onnx": "sherpa-onnx"}

MAX_BATCH = 32
"Largest number of utterances in one step. The library's own cost of a step with 32 is 0.6 ms."
WINDOW_MS = 30_000.0
"""Longest audio of one item for models of whole utterances. The memory of some grows with the
square of the length."""

Decoding = Literal["greedy_search", "modified_beam_search"]
"Search for the words, as the library names it."
GREEDY: Decoding = "greedy_search"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `sherpa`."""

    model: str
    "Name of a folder in the models folder, or a path."
    family: str = AUTO
    "Family of the model; auto: by the notes in its files."
    languages: tuple[Annotated[str, Meta(pattern="^[a-z]{2,3}$")], ...] = ()
    """ISO 639-1 codes of the languages that the model knows; none: those that its files or the list
    of releases names."""
    threads: Annotated[int, Meta(ge=1, le=64)] = 2
    "Threads that compute one step."
    decoding: Decoding = GREEDY
    "`modified_beam_search` keeps several hypotheses: hot words need it. Transducers only."
    punctuation: str = ""
    """Folder in the models folder, or a path, of a model that adds punctuation to final results;
    empty: none."""
    hotwords_score: Annotated[float, Meta(ge=0, le=20)] = 1.5
    "Bonus for each token of a hot word."
    emission_ms: Annotated[int, Meta(ge=0, le=2000)] = 100
    """Longest time in ms between the end of a word and its text, in addition to the look-ahead of a
    streaming model."""
    open_utterances: Annotated[int, Meta(ge=1, le=1024)] = 64
    "Utterances whose state is kept between partials; with more the oldest starts again."
    max_batch: Annotated[int, Meta(ge=1, le=256)] = MAX_BATCH
    "Utterances that are computed at once."


def describe(settings: Settings) -> AsrInfo:
    """Returns the properties of the model, read from its files without loading it.

    Raises EngineMissing if there is no model, ConfigError if the library would refuse it.
    """
    return _info(settings, _checked_model(settings))


def create(settings: Settings) -> AsrModel:
    """Returns the engine with its models loaded.

    Raises EngineMissing if there is no model, ConfigError if it cannot be loaded, ImportError
    without the library.
    """
    model = _checked_model(settings)
    info = _info(settings, model)
    recogniser = _recogniser(settings, model, info)
    if not settings.punctuation:
        return recogniser
    import sherpa_onnx

    file = read_punctuation_file(Path(settings.punctuation).expanduser())
    part = sherpa_onnx.OfflinePunctuationModelConfig(
        ct_transformer=str(file), num_threads=settings.threads
    )
    config = sherpa_onnx.OfflinePunctuationConfig(model=part)
    try:
        punctuator = sherpa_onnx.OfflinePunctuation(config)
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"{file} cannot be loaded: {error}") from error
    return PunctuatedModel(recogniser, punctuator)


def _recogniser(
    settings: Settings, model: SherpaModel, info: AsrInfo
) -> StreamingSherpa | OfflineSherpa:
    """Loads a model that was checked. Raises ConfigError, ImportError."""
    import sherpa_onnx

    library = (
        sherpa_onnx.OnlineRecognizer if model.family.is_streaming else sherpa_onnx.OfflineRecognizer
    )
    # The library reads the pieces of words while it loads, so their file is not needed later.
    with TemporaryDirectory(prefix="earshot-sherpa-") as folder:
        try:
            recognizer = getattr(library, model.family.loader)(
                tokens=str(model.tokens),
                num_threads=settings.threads,
                **{part: str(path) for part, path in model.files.items()},
                **model.family.arguments,
                **_language_arguments(settings, model),
                **_search_arguments(settings, model, Path(folder)),
            )
        except (RuntimeError, ValueError, OSError) as error:  # damage that the notes do not show
            raise ConfigError(f"{model.folder} cannot be loaded: {error}") from error
    if model.family.is_streaming:
        return StreamingSherpa(
            recognizer, model, info, language_prompts(model), settings.open_utterances
        )
    return OfflineSherpa(recognizer, model, info)


def language_prompts(model: SherpaModel) -> Mapping[str, str]:
    """Returns the model's names of the languages that can be chosen, by ISO 639-1 code. A language
    with several countries has the name of the first one. Raises ConfigError."""
    text = model.notes.get("prompt_dictionary", "")
    if not text:
        return {}
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{model.folder}: the note prompt_dictionary: {error}") from error
    if not isinstance(names, dict):
        raise ConfigError(f"{model.folder}: the note prompt_dictionary is no JSON object")
    prompts: dict[str, str] = {}
    for name in names:
        if name != AUTO:
            prompts.setdefault(name.partition("-")[0].lower(), name)
    return prompts


def _checked_model(settings: Settings) -> SherpaModel:
    model = read_model(Path(settings.model).expanduser(), settings.family)
    if settings.decoding != GREEDY and not model.family.can_search:
        raise ConfigError(
            f"asr.options.decoding: a {model.family.name} can only do {GREEDY}, not"
            f" {settings.decoding}"
        )
    if settings.punctuation:
        read_punctuation_file(Path(settings.punctuation).expanduser())
    return model


def _info(settings: Settings, model: SherpaModel) -> AsrInfo:
    is_streaming = model.family.is_streaming
    supports: tuple[str, ...] = ("timestamps",) if model.family.has_times else ()
    if settings.decoding != GREEDY and model.bpe_vocabulary is not None:
        supports += ("hotwords",)
    return AsrInfo(
        name="sherpa",
        model=model.name,
        languages=_languages(settings, model),
        max_batch=settings.max_batch,
        is_incremental=is_streaming,
        window_ms=None if is_streaming else WINDOW_MS,
        supports=supports,
        lag_ms=model.look_ahead_ms + settings.emission_ms if is_streaming else 0.0,
        steps=model.steps,
    )


def _languages(settings: Settings, model: SherpaModel) -> tuple[str, ...]:
    """Returns the languages of a model: those of the settings, of its own notes, or of its release;
    English if nothing says otherwise."""
    if settings.languages:
        return settings.languages
    release = find_release(model.name)
    return tuple(language_prompts(model)) or (release.languages if release else ()) or ("en",)


def _language_arguments(settings: Settings, model: SherpaModel) -> dict[str, Any]:
    """Returns the language with which a model of whole utterances is loaded. If there are several,
    the model detects the language, if it can."""
    argument, languages = model.family.language_argument, _languages(settings, model)
    if not argument:
        return {}
    if (
        model.family.name == "canary"
    ):  # it cannot detect the language, and translates into the other
        return {argument: languages[0], "tgt_lang": languages[0]}
    return {argument: languages[0] if len(languages) == 1 else ""}


def _search_arguments(settings: Settings, model: SherpaModel, folder: Path) -> dict[str, Any]:
    """Returns the arguments for the search and its hot words. `folder`: for a file that the library
    reads."""
    if not model.family.can_search:
        return {}
    arguments: dict[str, Any] = {"decoding_method": settings.decoding}
    if settings.decoding != GREEDY and model.bpe_vocabulary is not None:
        arguments["modeling_unit"] = "bpe"
        arguments["bpe_vocab"] = str(as_vocabulary(model.bpe_vocabulary, folder / "bpe.vocab"))
        arguments["hotwords_score"] = settings.hotwords_score
    return arguments
