"""Engine for vectors of texts and images: CLIP and SigLIP models on onnxruntime.

A checkpoint of transformers needs no conversion. A folder with exported towers
(`onnx/text_model.onnx`, `onnx/vision_model.onnx`) is used as it is.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import EngineError
from engines.base.text import ClipItem, ClipResult
from engines.embed.onnx import Settings
from engines.runtime.image_text.folder import ImageTextFolder, read_image_text_folder
from engines.runtime.image_text.image import Pixels, UnusableImage, prepare_image
from engines.runtime.image_text.towers import (
    IMAGE_INPUT,
    IMAGE_OUTPUT,
    TEXT_INPUT,
    TEXT_OUTPUT,
    image_tower,
    text_tower,
)
from engines.runtime.model_files.checkpoint_graph import Checkpoint
from engines.runtime.text_encoder.encoder import Floats, open_session

__all__ = ["EXTRA", "REQUIRES", "OnnxClip", "Settings", "create"]

EXTRA = "clip"
REQUIRES = {"onnxruntime": "onnxruntime", "tokenizers": "tokenizers", "PIL": "pillow"}

MAX_CALL_TEXTS = 32
"Largest number of texts in one run of the network, which needs memory for each."

POOLED_OUTPUT = "pooler_output"
"Name of the output of a tower that was exported from a SigLIP model."

MASK_INPUT = "attention_mask"


def create(settings: Settings) -> "OnnxClip":
    """Loads the model. Raises EngineError if its files do not fit together."""
    return OnnxClip(settings)


class OnnxClip:
    """A `ClipModel`."""

    def __init__(self, settings: Settings) -> None:
        import PIL  # noqa: F401  # a missing library fails now, not at the first image
        from tokenizers import Tokenizer

        folder = read_image_text_folder(Path(settings.model))
        self._folder, self.info = folder, folder.info
        self._tokenizer = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
        self._pad_id = self._pad_token_id()
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._texts = _Network(folder, folder.text_file, text_tower, TEXT_OUTPUT, settings.threads)
        self._images = _Network(
            folder, folder.image_file, image_tower, IMAGE_OUTPUT, settings.threads
        )
        # An exported file may belong to another model: check that both towers give vectors.
        self._text_vectors([[0]])
        size = folder.vision.image_size
        self._images.run({IMAGE_INPUT: np.zeros((1, 3, size, size), np.float32)})

    def embed(self, items: Sequence[ClipItem]) -> list[ClipResult]:
        """Computes all texts together, and all images together."""
        tokens = [[self._tokenize(text, item) for text in item.texts] for item in items]
        fits_limit = [all(len(ids) <= self.info.max_tokens for ids in item) for item in tokens]
        images = [_prepare(item.image, self._folder) if item.image else None for item in items]
        texts = iter(
            self._text_vectors(
                [ids for item, fits in zip(tokens, fits_limit, strict=True) if fits for ids in item]
            )
        )
        pixels = [image for image in images if isinstance(image, np.ndarray)]
        rows = iter(self._images.run({IMAGE_INPUT: np.stack(pixels)}) if pixels else ())
        results: list[ClipResult] = []
        for ids, fits, image in zip(tokens, fits_limit, images, strict=True):
            if isinstance(image, str):
                results.append(ClipResult(problem=image))
            elif image is not None:
                results.append(ClipResult(vectors=_to_bytes(next(rows))))
            else:
                vectors = b"".join(_to_bytes(next(texts)) for _ in ids) if fits else b""
                results.append(ClipResult(tuple(map(len, ids)), vectors))
        return results

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _tokenize(self, text: str, item: ClipItem) -> list[int]:
        encoding = self._tokenizer.encode(text)
        if item.is_cut and len(encoding.ids) > self.info.max_tokens:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            room = self.info.max_tokens - self._tokenizer.num_special_tokens_to_add(False)
            encoding.truncate(room)
            encoding = self._tokenizer.post_process(encoding)
        ids: list[int] = encoding.ids
        return ids

    def _text_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Returns a row for each text. Texts of similar length share a run of the network."""
        rows: dict[int, Floats] = {}
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for start in range(0, len(order), MAX_CALL_TEXTS):
            group = order[start : start + MAX_CALL_TEXTS]
            ids, mask = self._pad([texts[index] for index in group])
            vectors = self._texts.run({TEXT_INPUT: ids, MASK_INPUT: mask})
            rows |= zip(group, vectors, strict=True)
        return [rows[index] for index in range(len(texts))]

    def _pad(self, group: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], ...]:
        """Returns ids and attention mask, padded on the right."""
        # SigLIP was trained with texts of full length, and without a mask.
        is_full = self._folder.family == "siglip"
        width = self.info.max_tokens if is_full else max(map(len, group))
        ids = np.full((len(group), width), self._pad_id, np.int64)
        mask = np.full(ids.shape, int(is_full), np.int64)
        for row, tokens in enumerate(group):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        return ids, mask

    def _pad_token_id(self) -> int:
        """Returns the id of the padding token: by its name, else by tokenizer.json or
        config.json."""
        named = self._tokenizer.token_to_id(self._folder.pad_token)
        if named is None and self._tokenizer.padding:
            named = self._tokenizer.padding["pad_id"]
        pad_id: int = (self._folder.text.pad_token_id or 0) if named is None else named
        return pad_id


class _Network:
    """The network of one tower."""

    def __init__(
        self,
        folder: ImageTextFolder,
        file: Path | None,
        build: Callable[[ImageTextFolder, Checkpoint], bytes],
        output: str,
        threads: int,
    ) -> None:
        """Loads the network. `file`: an exported network; None: `build` makes one for the
        checkpoint. `output`: name of its output."""
        self._folder = folder
        self._name = file.name if file else "model.safetensors"
        network = file or build(folder, Checkpoint(folder.path, "clip"))
        self._session: Any = open_session(network, folder.path, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        outputs = [node.name for node in self._session.get_outputs()]
        known_output = next((name for name in (output, POOLED_OUTPUT) if name in outputs), None)
        if known_output is None:
            raise self._error(f"has no output {output} or {POOLED_OUTPUT}")
        self._output = known_output

    def run(self, feed: dict[str, npt.NDArray[Any]]) -> Floats:
        """Returns the vectors. `feed`: inputs by name; those that the network does not have are
        ignored. Raises EngineError if the vectors have another length than config.json says."""
        used = {name: value for name, value in feed.items() if name in self._inputs}
        vectors: Floats
        (vectors,) = self._session.run([self._output], used)
        (count,) = {len(value) for value in feed.values()}
        expected = (count, self._folder.info.dimensions)
        if vectors.shape != expected:
            why = f"gives vectors of the shape {vectors.shape}, but config.json says {expected}"
            raise self._error(why)
        return vectors

    def _error(self, why: str) -> EngineError:
        return EngineError("clip", self._folder.info.model, f"{self._name} {why}")


def _prepare(data: bytes, folder: ImageTextFolder) -> Pixels | str:
    """Returns the values of an image, or the reason why it cannot be used."""
    try:
        return prepare_image(data, folder.preparation)
    except UnusableImage as error:
        return str(error)


def _to_bytes(row: Floats) -> bytes:
    return row.astype("<f4").tobytes()
