"""Requests of KServe's protocol for vectors: what is accepted, and what is refused."""

import pytest

from core.errors import RequestError
from engines.base.text import MAX_IMAGE_BYTES, TextModelInfo
from web.images import MAX_IMAGES
from web.kserve.tensors import BYTES, InferRequest, Tensor
from web.kserve.texts import embedding_request, inputs

TEXTS = TextModelInfo("onnx", "words", 16, 512, 1000, 384)
CLIP = TextModelInfo("onnx", "pictures", 8, 77, 1000, 512, has_images=True)


def _request(**values: tuple[bytes, ...]) -> InferRequest:
    tensors = {name: Tensor(name, BYTES, (len(rows),), rows) for name, rows in values.items()}
    return InferRequest("m", inputs=tensors)


def test_a_model_of_images_takes_texts_or_images() -> None:
    assert [entry["name"] for entry in inputs(TEXTS)] == ["TEXT"]
    assert [entry["name"] for entry in inputs(CLIP)] == ["TEXT", "IMAGE"]
    assert embedding_request(_request(TEXT=(b"a", b"b")), CLIP).contents == ("a", "b")
    assert embedding_request(_request(IMAGE=(b"file",)), CLIP).contents == (b"file",)


@pytest.mark.parametrize(
    ("info", "values", "why"),
    [
        (TEXTS, {"IMAGE": (b"x",)}, "Unknown input 'IMAGE'. Allowed: TEXT."),
        (CLIP, {"PIXELS": (b"x",)}, "Allowed: TEXT, IMAGE."),
        (CLIP, {}, "one input of BYTES, one value per row: TEXT or IMAGE"),
        (CLIP, {"TEXT": (b"a",), "IMAGE": (b"x",)}, "one input of BYTES"),
        (CLIP, {"IMAGE": ()}, f"0 images; allowed are 1 to {MAX_IMAGES}"),
        (CLIP, {"IMAGE": (b"x",) * (MAX_IMAGES + 1)}, f"allowed are 1 to {MAX_IMAGES}"),
        (CLIP, {"IMAGE": (b"",)}, f"1 to {MAX_IMAGE_BYTES} bytes"),
        (CLIP, {"TEXT": (b"\xff",)}, "it is not UTF-8"),
    ],
)
def test_other_requests_are_told_what_is_wrong(
    info: TextModelInfo, values: dict[str, tuple[bytes, ...]], why: str
) -> None:
    with pytest.raises(RequestError) as caught:
        embedding_request(_request(**values), info)
    assert why in str(caught.value)
