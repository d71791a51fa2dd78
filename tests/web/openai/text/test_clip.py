"""Texts and images of `/v1/embeddings`, on a server with a CLIP model and one for texts."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from tests.engines.clip.tiny_clip import DIMENSIONS, Reference, ids_of, picture, write_clip
from tests.engines.embed.tiny_model import Weights, write_embedder
from tests.server.process import serving

pytest.importorskip("PIL", reason="the extra clip is not installed")

pytestmark = pytest.mark.live

Served = tuple[str, Path, Weights]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clip")
    weights = write_clip(folder / "models/pictures")
    write_embedder(folder / "models/words")
    write_clip(folder / "models/liar", projection_dim=24)
    settings = {"EARSHOT_PATHS__MODELS_DIR": str(folder / "models")}
    with serving(folder, settings=settings) as server:
        yield server.url, folder, weights


def _post(served: Served, model: str, given: Any, status: int = 200, **fields: Any) -> Any:
    body = {"model": model, "input": given, **fields}
    answer = httpx.post(f"{served[0]}/v1/embeddings", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]


def _url(**options: Any) -> str:
    return f"data:image/png;base64,{b64encode(picture(**options)).decode()}"


def test_texts_and_images_become_vectors_of_one_space(served: Served) -> None:
    inputs = ["a photo of a cat", {"image": _url()}, {"text": "dog"}, {"image": _url(seed=1)}]
    made = _post(served, "pictures", inputs)
    rows = [one["embedding"] for one in made["data"]]
    assert [len(row) for row in rows] == [DIMENSIONS] * 4
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    reference = Reference(served[2], is_clip=True)
    for row, text in ((rows[0], "a photo of a cat"), (rows[2], "dog")):
        expected = reference.text(ids_of(text))
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)
    assert made["usage"]["prompt_tokens"] == 7 + 3
    packed = _post(served, "pictures", [{"image": _url()}], encoding_format="base64")
    found = np.frombuffer(b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(found, rows[1], atol=1e-6)


def test_a_large_photo_fits_into_a_request(served: Served) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1200, 3), np.uint8)
    (made,) = _post(served, "pictures", [{"image": _bmp(noise)}])["data"]
    assert len(made["embedding"]) == DIMENSIONS


def _bmp(pixels: Any) -> str:
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels).save(file, "BMP")
    return b64encode(file.getvalue()).decode()


WRONG: list[tuple[str, Any, str, str]] = [
    ("words", [{"image": _url()}], "invalid_image", "the model 'words' takes no images"),
    ("pictures", [{"image": _url(), "text": "cat"}], "invalid_value", "either 'text' or 'image'"),
    ("pictures", [[1, 2]], "invalid_value", "no token ids"),
    ("pictures", "cat " * 20, "context_length_exceeded", "takes at most 12"),
    (
        "pictures",
        ["cat", {"image": "eA=="}],
        "invalid_image",
        "'input[1]': it is not an image in one",
    ),
    ("pictures", [{"image": "data:image/svg+xml;base64,eA=="}], "invalid_image", "allowed: image/"),
    ("pictures", ["cat", {"image": "no!"}], "invalid_image", "'input[1]': it is no base64"),
    ("nobody", "cat", "model_not_found", "Allowed: words, "),
    ("pictures", [{"image": "https://example.com/x"}], "invalid_image", "models.image_hosts"),
    ("pictures", [{"image": _url()}] * 65, "array_above_max_length", "at most 64"),
]


@pytest.mark.parametrize(
    ("model", "given", "code", "message"), WRONG, ids=[str(index) for index in range(len(WRONG))]
)
def test_a_wrong_request_is_told_what_is_wrong(
    served: Served, model: str, given: Any, code: str, message: str
) -> None:
    error = _post(served, model, given, 404 if code == "model_not_found" else 400)
    assert (error["code"], message in error["message"]) == (code, True), error


def test_a_model_that_lies_about_its_shape_is_not_loaded(served: Served) -> None:
    error = _post(served, "liar", "cat", 502)
    assert "'text_projection.weight' has the shape [12, 16]" in error["message"]
    cards = httpx.get(f"{served[0]}/v1/models").json()["data"]
    states = {card["id"]: card["state"] for card in cards if card["kind"] == "clip"}
    assert states["liar"] == "failed"


def test_the_list_of_models_shows_kind_and_dimensions(served: Served) -> None:
    cards = {card["id"]: card for card in httpx.get(f"{served[0]}/v1/models").json()["data"]}
    assert (cards["pictures"]["kind"], cards["pictures"]["dimensions"]) == ("clip", DIMENSIONS)
    assert cards["words"]["dimensions"] == 16
