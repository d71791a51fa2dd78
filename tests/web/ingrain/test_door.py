"""Requests of Ingrain's clients, as each generation sends them, against a server with both ports
and a small model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.web.ingrain.ports import CLIENT, Ports, opened_ports

pytestmark = pytest.mark.live

NAME = "acme/tiny"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("ingrain")
    write_embedder(folder / "models/acme--gone")
    write_embedder(folder / "models/acme--tiny")
    with opened_ports(folder) as ports:
        yield ports


@pytest.fixture
def loaded(ports: Ports) -> Ports:
    ports.post("/load_model", {"name": NAME, "library": "sentence_transformers"})
    return ports


def test_each_port_says_what_it_is(ports: Ports) -> None:
    told = [httpx.get(f"{url}/health").json() for url in (ports.inference, ports.models)]
    assert told == [
        {"message": "The inference server is running."},
        {"message": "The model server is running."},
    ]


def test_a_model_must_be_loaded_before_it_computes(ports: Ports) -> None:
    ports.post("/unload_model", {"name": NAME})
    refused = ports.post("/embed_text", {"name": NAME, "text": "cat"}, 400)
    assert refused == {
        "detail": f"Model {NAME} is not loaded. Load the model first using /load_model."
    }
    first = ports.post("/load_sentence_transformer_model", {"model_name": NAME})
    again = ports.post("/load_model", {"name": NAME, "library": "sentence_transformers"})
    assert first == {"message": f"Model {NAME} loaded successfully."}
    assert again == {"message": f"Model {NAME} is already loaded."}
    assert ports.get("/loaded_models", **CLIENT) == {
        "models": [{"name": NAME, "library": "sentence_transformers"}]
    }
    listed = ports.get("/repository_models", **CLIENT)["models"]
    assert listed[-1] == {"name": NAME, "library": "sentence_transformers", "state": "READY"}
    unloaded = ports.post("/unload_model", {"name": NAME, "pretrained": None})
    assert unloaded == {"message": f"Model {NAME} unloaded successfully."}
    assert ports.get("/loaded_models")["models"] == []


def test_the_answer_has_the_form_of_the_requests_generation(loaded: Ports) -> None:
    seed = loaded.post("/infer_text", {"model_name": NAME, "text": ["cat", "dog sits on mat"]})
    older = loaded.post("/infer_text", {"name": NAME, "pretrained": None, "text": "cat"})
    newer = {"name": NAME, "text": "cat", "normalize": True, "n_dims": None}
    newest = loaded.post("/embed_text", newer)
    assert [set(one) for one in (seed, older, newest)] == [
        {"embedding", "processingTimeMs"},
        {"embeddings", "processingTimeMs"},
        {"embeddings", "processingTimeMs"},
    ]
    assert len(seed["embedding"]) == 2
    for one in (older, newest):
        np.testing.assert_allclose(one["embeddings"][0], seed["embedding"][0], atol=1e-6)
    both = {"model_name": NAME, "text": "cat", "image": None}
    assert set(loaded.post("/infer", both)) == {"text_embeddings", "processingTimeMs"}
    assert set(loaded.post("/embed", {**newer, "image": None})) == {
        "textEmbeddings",
        "processingTimeMs",
    }
    assert set(loaded.post("/embed", {"name": NAME})) == {"processingTimeMs"}


def test_vectors_are_cut_and_get_the_length_1_again(loaded: Ports) -> None:
    (whole,) = loaded.post("/embed_text", {"name": NAME, "text": "cat"})["embeddings"]
    (short,) = loaded.post("/embed_text", {"name": NAME, "text": "cat", "nDims": 4})["embeddings"]
    np.testing.assert_allclose(short, np.array(whole[:4]) / np.linalg.norm(whole[:4]), atol=1e-6)
    wrong = loaded.post("/embed_text", {"name": NAME, "text": "cat", "n_dims": 99}, 400)
    assert f"1 to {SIZE}" in wrong["detail"]


def test_a_text_that_is_too_long_is_cut(loaded: Ports) -> None:
    long, fits = ("cat " * 50, "cat " * 10)
    rows = loaded.post("/embed_text", {"name": NAME, "text": [long, fits]})["embeddings"]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)


WRONG: list[tuple[str, Any, str]] = [
    ("/embed_text", {"text": "cat"}, "Missing required parameter: 'name'."),
    ("/embed_text", {"name": NAME}, "Missing required parameter: 'text'."),
    ("/embed_text", {"name": NAME, "text": [1]}, "'text[0]'"),
    ("/embed_text", {"name": NAME, "text": ""}, "it is empty"),
    ("/embed_text", {"name": NAME, "text": ["cat"] * 2049}, "at most 2048"),
    ("/embed_text", [NAME], "The body must be a JSON object."),
    ("/embed_image", {"name": NAME, "image": "x"}, "does not support image inference"),
    ("/embed", {"name": NAME, "text": "cat", "image": "x"}, "does not support image inference"),
    ("/load_model", {"name": NAME, "library": "open_clip"}, "is one of sentence_transformers"),
    ("/load_clip_model", {"model_name": NAME}, "is one of sentence_transformers"),
    ("/load_timm_model", {"name": "resnet18"}, "Models of timm"),
    ("/classify_image", {"name": NAME, "image": "x"}, "does not support classification"),
    ("/load_model", {"name": NAME, "library": "torch"}, "'library'"),
]


@pytest.mark.parametrize(("path", "body", "message"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong(
    loaded: Ports, path: str, body: Any, message: str
) -> None:
    assert message in loaded.post(path, body, 400)["detail"]


@pytest.mark.parametrize("headers", [CLIENT, {}])
def test_statistics_of_the_inference_port_have_tritons_form_in_camel_case(
    loaded: Ports, headers: dict[str, str]
) -> None:
    before = _requests(loaded)
    loaded.post("/embed_text", {"name": NAME, "text": "cat"})
    (model,) = loaded.get("/metrics", **headers)["modelStats"]
    assert model["name"] == f"{NAME}/text_encoder"
    assert int(model["inferenceCount"]) == before + 1
    assert all(set(one) == {"count", "ns"} for one in model["inferenceStats"].values())
    assert int(model["inferenceStats"]["computeInfer"]["ns"]) > 0
    assert {one["batchSize"] for one in model["batchStats"]} == {"1"}


def _requests(ports: Ports) -> int:
    (model,) = ports.get("/metrics")["modelStats"]
    return int(model["inferenceCount"])


def test_statistics_of_the_one_port_have_tritons_form_in_snake_case(tmp_path: Path) -> None:
    write_embedder(tmp_path / "models/acme--tiny")
    with opened_ports(tmp_path, INGRAIN__MODEL_PORT="0") as ports:
        told = httpx.post(f"{ports.inference}/load_model", json={"model_name": NAME}, timeout=60)
        assert told.status_code == 200, told.text
        (model,) = ports.get("/metrics")["model_stats"]
        assert model["name"] == "acme_tiny"
        assert set(model["inference_stats"]) >= {"success", "fail", "queue", "compute_infer"}
        (model,) = ports.get("/metrics", **CLIENT)["modelStats"]
        assert model["name"] == f"{NAME}/text_encoder"


def test_an_unknown_model_is_an_error_only_for_later_clients(ports: Ports) -> None:
    for path in ("/unload_model", "/load_model"):
        assert "nobody not found" in ports.post(path, {"name": "nobody"}, 404)["detail"]
    assert "not found" in ports.delete("/delete_model", {"name": "nobody"}, 404)["detail"]
    told = ports.post("/unload_model", {"model_name": "nobody"})
    assert told == {"message": "Model nobody is not loaded."}
    told = ports.post("/delete_model", {"model_name": "nobody"})
    assert told == {"message": "Model nobody deleted successfully."}


def test_a_deleted_model_is_gone(loaded: Ports) -> None:
    loaded.post("/load_model", {"name": "acme/gone"})
    told = loaded.delete("/delete_model", {"name": "acme/gone"})
    assert told == {"message": "Model acme/gone deleted successfully."}
    assert not (loaded.folder / "acme--gone").exists()
    assert [one["name"] for one in loaded.get("/repository_models")["models"]] == [NAME]


def test_the_length_of_vectors_is_told(ports: Ports) -> None:
    assert ports.get(f"/model_embedding_size?name={NAME}") == {"embeddingSize": SIZE}
