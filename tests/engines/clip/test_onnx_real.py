"""Vectors and prepared images are those of transformers, for models of real widths."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from engines.base.text import ClipItem
from engines.clip import onnx as clip
from engines.llm.vllm.environment import python_of
from engines.runtime.image_text.folder import read_image_text_folder
from engines.runtime.image_text.image import prepare_image
from tests.engines.clip.tiny_clip import picture
from tests.engines.llm.vllm.installation import installed

pytest.importorskip("PIL", reason="the extra clip is not installed")

pytestmark = [pytest.mark.real, pytest.mark.late]

PROGRAM = Path(__file__).parent / "transformers_reference" / "vectors.py"
REFERENCE_TIMEOUT_S = 600.0
TOLERANCE = 1e-4

WORDS = {"a": 320, "photo": 1125, "of": 539, "cat": 2368, "dog": 1929}
PICTURES = ((640, 480, "JPEG"), (333, 500, "PNG"), (224, 224, "WEBP"), (90, 60, "BMP"))


@pytest.mark.parametrize(("family", "end_id", "length"), [("clip", 49_407, 77), ("siglip", 1, 64)])
def test_vectors_equal_those_of_transformers(
    tmp_path: Path, family: str, end_id: int, length: int
) -> None:
    folder = tmp_path / family
    folder.mkdir()
    python = os.environ.get("EARSHOT_TRANSFORMERS_PYTHON") or python_of(installed())
    texts = ["cat", "a photo of a dog", "dog " * (length - 2)]
    ids = [_ids(text, family, end_id) for text in texts]
    padded = [row + [1] * (length - len(row)) for row in ids] if family == "siglip" else ids
    files = [tmp_path / f"{index}" for index in range(len(PICTURES))]
    for seed, (file, (width, height, form)) in enumerate(zip(files, PICTURES, strict=True)):
        file.write_bytes(picture(width, height, form, seed))
    done = subprocess.run(
        [str(python), str(PROGRAM), family, str(folder)],
        input=json.dumps({"texts": padded, "images": list(map(str, files))}),
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=REFERENCE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    expected = np.load(folder / "expected.npz")
    _write_tokenizer(folder, family, end_id)

    preparation = read_image_text_folder(folder).preparation
    pixels = np.stack([prepare_image(file.read_bytes(), preparation) for file in files])
    # Both round to 256 levels; few values differ, by one level.
    apart = np.abs(pixels - expected["pixels"])
    assert (apart > TOLERANCE).mean() < 0.01
    assert apart.max() < 0.03

    model = clip.create(clip.Settings(str(folder)))
    items = [ClipItem(image=file.read_bytes()) for file in files]
    rows, *images = model.embed([ClipItem(tuple(texts)), *items])
    vectors = np.frombuffer(rows.vectors, "<f4").reshape(len(texts), -1)
    shown = np.stack([np.frombuffer(image.vectors, "<f4") for image in images])
    differences = [
        np.abs(actual_rows - expected_rows).max() / np.abs(expected_rows).max()
        for actual_rows, expected_rows in (
            (vectors, expected["texts"]),
            (shown, expected["images"]),
        )
    ]
    print(f"largest differences, texts and images: {differences}")
    assert differences[0] <= TOLERANCE
    assert differences[1] <= 0.01


def _ids(text: str, family: str, end_id: int) -> list[int]:
    start = [49_406] if family == "clip" else []
    return [*start, *(WORDS[word] for word in text.split()), end_id]


def _write_tokenizer(folder: Path, family: str, end_id: int) -> None:
    """Writes a tokenizer with the special tokens of the real one, and few words."""
    special = {"<start>": 49_406} if family == "clip" else {}
    special["<end>"] = end_id
    tokenizer = Tokenizer(WordLevel({**WORDS, **special}, "<end>"))
    tokenizer.pre_tokenizer = Whitespace()
    start = "<start> " if family == "clip" else ""
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start}$A <end>", special_tokens=list(special.items())
    )
    tokenizer.save(str(folder / "tokenizer.json"))
