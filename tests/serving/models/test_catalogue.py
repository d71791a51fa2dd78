"""The table of known models, and the search for a model by any of its names."""

import pytest
from faster_whisper.utils import _MODELS

from serving.models.catalogue import (
    UnknownModelError,
    entries,
    find_entry,
    require_entry,
    short_name,
)


def test_names_of_faster_whisper_are_known() -> None:
    differing = [name for name, where in _MODELS.items() if require_entry(name).repository != where]
    assert differing == ["large"]  # large-v3 there; Willow's clients mean large-v2


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("large", "large-v2"),
        ("turbo", "large-v3-turbo"),
        (" Tiny ", "tiny"),
        ("openai/whisper-tiny", "tiny"),
        ("openai/whisper-large-v3", "large-v3"),
        ("Systran/faster-whisper-base.en", "base.en"),
        ("tovera/wis-whisper-medium", "wis-medium"),
        ("large-v2-turbo-multi-hans", "large-v2-turbo-multi-hans"),
        ("all-minilm", "all-MiniLM-L6-v2"),
        ("BAAI/bge-small-en-v1.5", "bge-small-en-v1.5"),
    ],
)
def test_names_of_replaced_systems_are_known(name: str, model: str) -> None:
    assert require_entry(name).name == model


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("faster-whisper-tiny", "tiny"),
        ("Systran--faster-whisper-tiny", "tiny"),
        ("tovera-wis-whisper-base", "wis-base"),
        ("faster-distil-whisper-small.en", "distil-small.en"),
        ("distil-large-v3.5-ct2", "distil-large-v3.5"),
        ("tiny", "tiny"),
        ("tiny-int8", "tiny-int8"),
        ("whisper-nano", "whisper-nano"),
        ("large-v2-multi-hans.checkpoint", "large-v2-multi-hans.checkpoint"),
    ],
)
def test_a_folder_has_a_short_name(folder: str, name: str) -> None:
    assert short_name(folder) == name


def test_a_pulled_model_is_found_by_its_name() -> None:
    for entry in entries():
        if entry.is_loadable:
            assert short_name(entry.folder) == entry.name


def test_the_error_for_an_unknown_name_lists_similar_ones() -> None:
    assert find_entry("smal") is None
    with pytest.raises(UnknownModelError, match=r"'smal'; similar: small, small\.en") as caught:
        require_entry("smal")
    assert (caught.value.code, caught.value.param) == ("model_unknown", "model")
    with pytest.raises(UnknownModelError, match="known: tiny, "):
        require_entry("qqq")


def test_names_are_unique_and_complete() -> None:
    names = [name for entry in entries() for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    for entry in entries():
        assert entry.repository.count("/") == 1
        assert entry.origin.count("/") == (1 if entry.kind == "asr" else 0)
        assert (entry.format == "text_encoder") == (entry.kind in ("embed", "rerank", "clip"))
        assert (entry.format == "onnx") == (entry.kind == "endpoint")
        assert (entry.format == "gguf") == (entry.kind == "llm")
        assert (entry.format == "npz") == (entry.kind == "speaker") == (not entry.is_on_hub)
        assert (entry.format == "transformers") == (entry.kind == "codec")
        assert (entry.format in ("openai", "onnx", "gguf", "npz")) == bool(entry.file)
        assert entry.is_multilingual != (entry.languages == "English")
    sizes = [entry.size_mb for entry in entries() if entry.is_automatic]
    assert sizes == sorted(sizes)
