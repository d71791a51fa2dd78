"""The bodies of requests of Ingrain's clients."""

from typing import Any

from core.errors import RequestError
from tests.fuzz.target import Target, lines
from web.ingrain.fields import (
    MAX_NAME_CHARS,
    IngrainEmbedFields,
    IngrainModelFields,
    camel_case,
    decode_ingrain,
)

BODIES: tuple[Any, ...] = (
    {"model_name": "a/b", "pretrained": None, "text": ["cat", "dog"], "normalize": False},
    {"name": "a/b", "library": "sentence_transformers"},
    {"name": "a/b", "text": "cat", "normalize": True, "n_dims": 4},
    {"name": "hf-hub:a/b", "pretrained": "c", "image": "x"},
    {"name": "a/b", "image": ["x"], "imageDownloadHeaders": {"A": "b"}, "nDims": None},
)
CODES = {"invalid_json", "invalid_value", "missing_required_parameter"}


def bodies(data: bytes) -> None:
    """Checks that a body gives fields within their bounds, or an error of a known code."""
    for fields_type in (IngrainModelFields, IngrainEmbedFields):
        try:
            fields = decode_ingrain(data, fields_type)
        except RequestError as error:
            assert error.code in CODES
            assert len(str(error)) < 1000
            str(error).encode()
            continue
        assert 0 < len(fields.model) <= MAX_NAME_CHARS
        if isinstance(fields, IngrainEmbedFields):
            assert fields.texts is None or all(isinstance(one, str) for one in fields.texts)
            assert fields.images is None or all(isinstance(one, str) for one in fields.images)
            assert len(fields.lookup_name) <= 2 * MAX_NAME_CHARS + 1
            assert fields.n_dims is None or fields.n_dims > 0
    assert camel_case({"a_b": [{"c_d": "e_f"}]}) == {"aB": [{"cD": "e_f"}]}


TARGETS = (Target(name="ingrain_bodies", one_input=bodies, seeds=lines(BODIES), is_json=True),)
