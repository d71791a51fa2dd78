"""The description of a model by its folder, before anything is loaded."""

from json import dumps
from pathlib import Path

import pytest
from msgspec.structs import replace

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.model_info import MODEL_FILES, Settings, describe

SPECIAL = ("endoftext", "startoftranscript", "en", "de", "yue", "translate", "transcribe")


def folder(place: Path, first: int, names: tuple[str, ...] = SPECIAL) -> Settings:
    for name in MODEL_FILES:
        (place / name).write_text("{}")
    added = [{"id": first + i, "content": f"<|{name}|>"} for i, name in enumerate(names)]
    (place / "tokenizer.json").write_text(dumps({"added_tokens": added, "model": {}}))
    return Settings(model=str(place))


@pytest.mark.parametrize(
    ("first", "languages"),
    [(50_257, ("en", "de", "yue")), (50_256, ("en",)), (500, ("en", "de", "yue"))],
)
def test_languages_are_the_tokens_before_the_tasks(
    tmp_path: Path, first: int, languages: tuple[str, ...]
) -> None:
    info = describe(folder(tmp_path, first))
    assert info.languages == languages
    assert ("task" in info.supports, "languages" in info.supports) == (len(languages) > 1,) * 2
    assert (info.model, info.window_ms) == (tmp_path.name, 29_500)
    assert info.has_prompt_training == (first > 50_000), (
        "whose tokens are not OpenAI's, is not either"
    )


@pytest.mark.parametrize(
    ("first", "notes", "tells"),
    [
        (50_257, "{}", True),
        (50_256, "{}", True),
        (500, "{}", False),
        (50_257, '{"tells_noise": false}', False),
        (500, '{"tells_noise": true}', True),
    ],
)
def test_noise_detection_depends_on_the_vocabulary_and_the_notes(
    tmp_path: Path, first: int, notes: str, tells: bool
) -> None:
    settings = folder(tmp_path, first)
    (tmp_path / "earshot.json").write_text(notes)
    info = describe(settings)
    assert info.tells_noise is tells
    assert ("former_words" in info.supports) is tells


@pytest.mark.parametrize(
    ("threshold", "rejects_nothing"), [(0.6, False), (0.99, False), (1.0, True)]
)
def test_a_no_speech_threshold_of_one_accepts_everything(
    tmp_path: Path, threshold: float, rejects_nothing: bool
) -> None:
    settings = replace(folder(tmp_path, 500), no_speech_threshold=threshold)
    assert describe(settings).rejects_nothing is rejects_nothing


def test_without_language_tokens_the_language_is_english(tmp_path: Path) -> None:
    names = ("endoftext", "startoftranscript", "translate", "transcribe")
    assert describe(folder(tmp_path, 500, names)).languages == ("en",)


def test_a_folder_without_a_whisper_model_is_named(tmp_path: Path) -> None:
    settings = folder(tmp_path, 500, ("endoftext", "startoftranscript"))
    with pytest.raises(ConfigError, match=r"no token '<\|transcribe\|>'; is this a Whisper model"):
        describe(settings)
    (tmp_path / "tokenizer.json").write_text("no json")
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        describe(settings)
    (tmp_path / "model.bin").unlink()
    with pytest.raises(EngineMissing, match=r"no model\.bin in"):
        describe(settings)
