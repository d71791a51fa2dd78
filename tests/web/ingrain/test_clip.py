"""Requests for CLIP models, as each generation of Ingrain's clients sends them."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engines.clip.tiny_clip import (
    DIMENSIONS,
    SIZE,
    Reference,
    ids_of,
    picture,
    write_clip,
    write_siglip,
)
from tests.engines.embed.tiny_model import Weights, write_embedder
from tests.web.ingrain.ports import CLIENT, Ports, opened_ports

pytest.importorskip("PIL", reason="the extra clip is not installed")

pytestmark = pytest.mark.live

REPOSITORY = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
SEED = {"model_name": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"}
OLDER = {"name": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"}
NEWER = {"name": f"hf-hub:{REPOSITORY}"}
TITLE = "ViT-B-32 with checkpoint laion2b_s34b_b79k"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ports, Weights]]:
    folder = tmp_path_factory.mktemp("ingrain")
    weights = write_clip(folder / "models" / REPOSITORY.rpartition("/")[2])
    write_siglip(folder / "models/acme--siglip")
    write_embedder(folder / "models/acme--texts")
    with opened_ports(folder) as ports:
        yield ports, weights


@pytest.fixture
def loaded(clip: tuple[Ports, Weights]) -> Ports:
    ports, _ = clip
    ports.post("/load_model", {**NEWER, "library": "open_clip"})
    return ports


def _base64(**picture_options: Any) -> str:
    return b64encode(picture(**picture_options)).decode()


def _unit(vector: Any) -> Any:
    return np.array(vector) / np.linalg.norm(vector)


def test_every_generation_loads_a_clip_by_its_own_name(clip: tuple[Ports, Weights]) -> None:
    ports, _ = clip
    ports.post("/unload_model", SEED)
    told = [
        ports.post("/load_clip_model", SEED),
        ports.post("/load_clip_model", OLDER),
        ports.post("/load_model", {**NEWER, "library": "open_clip"}),
    ]
    assert [one["message"] for one in told] == [
        f"Model {TITLE} loaded successfully.",
        f"Model {TITLE} is already loaded.",
        f"Model hf-hub:{REPOSITORY} is already loaded.",
    ]
    name = REPOSITORY.rpartition("/")[2]
    assert {"name": name, "library": "open_clip"} in ports.get("/loaded_models", **CLIENT)["models"]
    assert ports.get(f"/model_embedding_size?name={REPOSITORY}") == {"embeddingSize": DIMENSIONS}
    wrong = ports.post("/load_model", {**NEWER, "library": "sentence_transformers"}, 400)
    assert "is one of open_clip, not of sentence_transformers" in wrong["detail"]


def test_texts_and_images_become_vectors(loaded: Ports, clip: tuple[Ports, Weights]) -> None:
    reference = Reference(clip[1], is_clip=True)
    text = loaded.post("/infer_text", {**SEED, "text": "a photo of a cat"})
    np.testing.assert_allclose(
        text["embedding"][0], _unit(reference.text(ids_of("a photo of a cat"))), atol=1e-5
    )
    seed = loaded.post("/infer_image", {**SEED, "image": _base64()})
    older = loaded.post("/infer_image", {**OLDER, "image": _base64()})
    newer = loaded.post(
        "/embed_image", {**NEWER, "image": [_base64(), _base64(seed=1)], "n_dims": None}
    )
    assert [set(one) for one in (seed, older, newer)] == [
        {"embedding", "processingTimeMs"},
        {"embeddings", "processingTimeMs"},
        {"embeddings", "processingTimeMs"},
    ]
    assert [len(row) for row in newer["embeddings"]] == [DIMENSIONS, DIMENSIONS]
    for one in (older, newer):
        np.testing.assert_allclose(one["embeddings"][0], seed["embedding"][0], atol=1e-6)
    assert np.linalg.norm(newer["embeddings"][1]) == pytest.approx(1)
    both = {"text": "cat", "image": f"data:image/png;base64,{_base64()}"}
    first = loaded.post("/infer", {**SEED, **both})
    assert set(first) == {"text_embeddings", "image_embeddings", "processingTimeMs"}
    later = loaded.post("/embed", {**NEWER, **both, "nDims": 4})
    assert set(later) == {"textEmbeddings", "imageEmbeddings", "processingTimeMs"}
    (short,) = later["imageEmbeddings"]
    np.testing.assert_allclose(short, _unit(seed["embedding"][0][:4]), atol=1e-5)
    raw = loaded.post("/embed_image", {**NEWER, "image": _base64(), "normalize": False})
    assert np.linalg.norm(raw["embeddings"][0]) != pytest.approx(1, abs=1e-3)


def test_a_siglip_is_a_model_of_open_clip_too(clip: tuple[Ports, Weights]) -> None:
    ports, _ = clip
    ports.post("/load_model", {"name": "acme/siglip", "library": "open_clip"})
    made = ports.post("/embed", {"name": "acme/siglip", "text": ["cat"], "image": [_base64()]})
    assert [len(made[name][0]) for name in ("textEmbeddings", "imageEmbeddings")] == [SIZE, SIZE]


def test_a_text_that_is_too_long_is_cut(loaded: Ports) -> None:
    rows = loaded.post("/embed_text", {**NEWER, "text": ["cat " * 99, "cat " * 10]})["embeddings"]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)


WRONG: list[tuple[str, Any, str]] = [
    ("/embed_image", {}, "Missing required parameter: 'image'."),
    ("/embed_image", {"image": "/etc/passwd"}, "it is no base64, no data: URL and no address"),
    ("/embed_image", {"image": "eA=="}, "it is not an image in one of the formats"),
    ("/embed_image", {"image": [_base64()] * 65}, "65 images; at most 64"),
    ("/embed_image", {"image": [_base64(), _base64()[:400]]}, "'image[1]': it is damaged"),
    ("/embed_image", {"image": "data:text/plain;base64,eA=="}, "its type is 'text/plain'"),
    ("/embed_image", {"image": "http://127.0.0.1/x.png"}, "setting models.image_hosts"),
    ("/embed_image", {"image": "file:///etc/passwd"}, "no address that begins with http://"),
    ("/embed_image", {"image": "A" * 10_000_000}, "more than 7340032 bytes"),
    ("/embed", {"text": "cat", "image": "x"}, "Invalid image. Please provide a valid image URL"),
    ("/embed_text", {"text": "cat", "n_dims": 99}, f"1 to {DIMENSIONS}"),
]


@pytest.mark.parametrize(
    ("path", "body", "message"), WRONG, ids=[str(n) for n in range(len(WRONG))]
)
def test_a_wrong_request_is_told_what_is_wrong(
    loaded: Ports, path: str, body: Any, message: str
) -> None:
    assert message in loaded.post(path, {**NEWER, **body}, 400)["detail"]


def test_images_need_a_model_that_takes_them_and_is_loaded(loaded: Ports) -> None:
    loaded.post("/load_model", {"name": "acme/texts"})
    told = loaded.post("/embed_image", {"name": "acme/texts", "image": _base64()}, 400)
    assert told == {"detail": "Model acme/texts does not support image inference."}
    loaded.post("/unload_model", NEWER)
    told = loaded.post("/embed_image", {**NEWER, "image": _base64()}, 400)
    assert "is not loaded. Load the model first using /load_model." in told["detail"]
