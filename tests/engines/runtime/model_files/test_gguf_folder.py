"""The GGUF files of a folder: models, models in several files, and vision projectors."""

from pathlib import Path

import pytest

from engines.runtime.model_files.gguf_file import UnreadableGgufError
from engines.runtime.model_files.gguf_folder import check_parts, model_files, only_model, projectors
from tests.engines.runtime.model_files.tiny_gguf import write_gguf


def test_parts_and_projectors_are_not_listed_as_models(tmp_path: Path) -> None:
    first, second = (write_gguf(tmp_path / f"big-0000{n}-of-00002.gguf") for n in (1, 2))
    projector = write_gguf(tmp_path / "mmproj-big-f16.gguf", architecture="clip")
    assert model_files(tmp_path) == [first]
    assert projectors(tmp_path) == [projector]
    assert only_model(tmp_path) == first
    assert check_parts(first).architecture == "llama"
    second.unlink()
    with pytest.raises(UnreadableGgufError, match="00002-of-00002"):
        check_parts(first)


def test_the_error_for_several_models_names_them(tmp_path: Path) -> None:
    with pytest.raises(UnreadableGgufError, match="it holds: none"):
        only_model(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(UnreadableGgufError, match=r"it holds: a\.gguf, b\.gguf"):
        only_model(tmp_path)
    assert only_model(tmp_path / "a.gguf") == tmp_path / "a.gguf"
