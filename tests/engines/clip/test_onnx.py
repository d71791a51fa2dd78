"""Vectors of texts and images are those of the networks that the folder describes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.errors import EngineError
from engines.base.text import ClipItem, ClipResult
from engines.clip import onnx as clip
from engines.runtime.image_text.folder import read_image_text_folder
from engines.runtime.image_text.image import prepare_image
from engines.runtime.text_encoder.folder import read_model_kind
from tests.engines.clip.tiny_clip import (
    POSITIONS,
    Reference,
    ids_of,
    picture,
    write_clip,
    write_siglip,
)
from tests.engines.embed.tiny_model import Weights

pytest.importorskip("PIL", reason="the extra clip is not installed")

pytestmark = pytest.mark.live

TEXTS = ("cat", "a photo of a dog", "a red square")

Write = Callable[[Path], Weights]

FAMILIES = pytest.mark.parametrize("write", [write_clip, write_siglip])


def _load(folder: Path) -> clip.OnnxClip:
    return clip.create(clip.Settings(str(folder), threads=1))


def _rows(result: ClipResult, dimensions: int) -> np.ndarray:
    return np.frombuffer(result.vectors, "<f4").reshape(-1, dimensions)


@FAMILIES
def test_vectors_are_those_of_the_networks(tmp_path: Path, write: Write) -> None:
    reference = Reference(write(tmp_path / "m"), is_clip=write is write_clip)
    model = _load(tmp_path / "m")
    images = [picture(seed=seed, width=32 + 9 * seed) for seed in range(3)]
    items = [ClipItem(TEXTS), *(ClipItem(image=image) for image in images), ClipItem(("cat",))]
    texts, *shown, again = model.embed(items)
    size = model.info.dimensions
    assert texts.tokens == (3, 7, 5)
    for text, row in zip(TEXTS, _rows(texts, size), strict=True):
        np.testing.assert_allclose(row, reference.text(ids_of(text)), atol=1e-4)
    preparation = read_image_text_folder(tmp_path / "m").preparation
    for image, result in zip(images, shown, strict=True):
        expected = reference.image(prepare_image(image, preparation))
        np.testing.assert_allclose(_rows(result, size)[0], expected, atol=1e-4)
    np.testing.assert_allclose(_rows(again, size)[0], _rows(texts, size)[0], atol=1e-6)


@FAMILIES
def test_a_text_that_is_too_long_is_cut_or_fails_only_its_own_item(
    tmp_path: Path, write: Write
) -> None:
    write(tmp_path / "m")
    model = _load(tmp_path / "m")
    long, fits = "cat " * POSITIONS, "cat " * (POSITIONS - 2)
    cases = ((("dog",), False), (("dog", long), False), ((long,), True), ((fits,), False))
    good, bad, cut, whole = model.embed([ClipItem(texts, is_cut=cut) for texts, cut in cases])
    assert good.vectors
    assert (bad.tokens, bad.vectors) == ((3, POSITIONS + 2), b"")
    assert cut.vectors == whole.vectors


def test_a_bad_image_fails_only_its_own_item(tmp_path: Path) -> None:
    write_clip(tmp_path / "m")
    good, bad = _load(tmp_path / "m").embed([ClipItem(image=picture()), ClipItem(image=b"x")])
    assert (bool(good.vectors), good.problem) == (True, "")
    assert "not an image in one of the formats JPEG, PNG" in bad.problem


def test_exported_towers_are_used_as_they_are(tmp_path: Path) -> None:
    from engines.runtime.image_text.towers import image_tower, text_tower
    from engines.runtime.model_files.checkpoint_graph import Checkpoint

    folder = tmp_path / "m"
    write_clip(folder)
    expected = _load(folder).embed([ClipItem(TEXTS), ClipItem(image=picture())])
    description = read_image_text_folder(folder)
    checkpoint = Checkpoint(folder, "clip")
    (folder / "text_model.onnx").write_bytes(text_tower(description, checkpoint))
    (folder / "vision_model.onnx").write_bytes(image_tower(description, checkpoint))
    found = _load(folder).embed([ClipItem(TEXTS), ClipItem(image=picture())])
    assert [one.vectors for one in found] == [one.vectors for one in expected]
    (folder / "vision_model.onnx").write_bytes(text_tower(description, checkpoint))
    with pytest.raises(EngineError, match=r"vision_model\.onnx has no output image_embeds"):
        _load(folder)


def _change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def test_an_unusable_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_clip(folder)
    assert read_model_kind(folder) == "clip"
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("config.json", {"text_config": {"hidden_size": "x"}}, "text_config: Expected `int`"),
        ("config.json", {"text_config": {"hidden_act": "relu"}}, "'relu' is not supported"),
        ("config.json", {"vision_config": {"image_size": 10**9}}, "vision_config: Expected"),
        ("config.json", {"projection_dim": 0}, "config.json: Expected `int` >= 1"),
        ("preprocessor_config.json", {"do_resize": False}, "do_resize and do_rescale"),
        ("preprocessor_config.json", {"crop_size": 64}, "images become 64 x 64 pixels"),
        ("preprocessor_config.json", {"resample": 1}, "resample must be 2 or 3"),
        ("preprocessor_config.json", {"image_std": [0, 1, 1]}, "image_std must be positive"),
    ]
    for name, changes, message in wrong:
        kept = (folder / name).read_bytes()
        _change(folder / name, **changes)
        with pytest.raises(EngineError, match=message):
            read_image_text_folder(folder)
        (folder / name).write_bytes(kept)
    (folder / "model.safetensors").unlink()
    with pytest.raises(EngineError, match=r"has neither model\.safetensors nor both of"):
        read_image_text_folder(folder)


def test_weights_of_a_wrong_shape_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_clip(folder, projection_dim=24)
    with pytest.raises(EngineError, match=r"'text_projection\.weight' has the shape \[12, 16\]"):
        _load(folder)
    write_clip(folder)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-4])
    with pytest.raises(EngineError, match="has a wrong size"):
        _load(folder)


def test_a_size_in_an_older_file_may_be_one_number(tmp_path: Path) -> None:
    write_clip(tmp_path / "m")
    expected = read_image_text_folder(tmp_path / "m").preparation
    _change(tmp_path / "m/preprocessor_config.json", size=32, crop_size=32)
    assert read_image_text_folder(tmp_path / "m").preparation == expected
    path = tmp_path / "m/preprocessor_config.json"
    joint = {"image_processor": json.loads(path.read_text("utf-8"))}
    path.unlink()
    (tmp_path / "m/processor_config.json").write_text(json.dumps(joint), "utf-8")
    assert read_image_text_folder(tmp_path / "m").preparation == expected
