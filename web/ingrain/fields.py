"""Decodes the bodies of Ingrain's API. Its clients of three generations name the fields in three
ways, and the answer is written as the request was.

| | first server | clients 0.0.x | clients from 0.1 |
|---|---|---|---|
| name of the model | `model_name` | `name` | `name` |
| other fields | snake_case | snake_case | snake_case or camelCase |
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from core.errors import RequestError
from web.openai.json_body import decode_json

MAX_NAME_CHARS = 200
"Longest name of a model; `organisation/repository` of a hub has at most 193 characters."

ModelName = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]

Library = Literal["sentence_transformers", "open_clip", "timm"]
"Library that a client expects the model to run in."

HUB_PREFIX = "hf-hub:"
"Beginning of a name of open_clip that means a repository of the Hugging Face hub."

_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


class IngrainModelFields(Struct, frozen=True, kw_only=True):
    """A model that is to be loaded, unloaded or deleted."""

    name: ModelName | None = None
    model_name: ModelName | None = None
    "Name of the field `name` in requests of the first generation."
    library: Library | None = None
    pretrained: ModelName | None = None
    "Name of a checkpoint of open_clip."

    @property
    def model(self) -> str:
        """Returns the name. Raises RequestError missing_required_parameter."""
        name = self.name or self.model_name
        if not name:
            raise RequestError(
                "Missing required parameter: 'name'.",
                code="missing_required_parameter",
                param="name",
            )
        return name

    @property
    def lookup_name(self) -> str:
        """Returns the name under which a model is found: open_clip's models are called by their
        network and their checkpoint, or by their repository. Raises like `model`."""
        name = self.model.removeprefix(HUB_PREFIX)
        return f"{name}/{self.pretrained}" if self.pretrained else name

    @property
    def is_first_generation(self) -> bool:
        """True: the request is one of the first generation, and so must be the answer."""
        return self.name is None and self.model_name is not None


class IngrainEmbedFields(IngrainModelFields, frozen=True, kw_only=True):
    """Texts, and images, of which vectors are wanted."""

    text: str | list[str] | None = None
    image: str | list[str] | None = None
    "Addresses of images, or images as base64."
    normalize: bool = True
    "True: each vector gets the length 1."
    n_dims: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    "Length to which the vectors are cut."
    image_download_headers: dict[str, str] | None = None
    "Headers for the hosts of the images' addresses."

    @property
    def texts(self) -> list[str] | None:
        """The texts as a list; None if the request has none."""
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def images(self) -> list[str] | None:
        """The images as a list; None if the request has none."""
        return [self.image] if isinstance(self.image, str) else self.image


F = TypeVar("F", bound=IngrainModelFields)


def decode_ingrain(body: bytes, fields_type: type[F]) -> F:
    """Decodes a request. Raises RequestError invalid_json, invalid_value and
    missing_required_parameter."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RequestError("The body must be a JSON object.", code="invalid_json") from None
    named = {snake_case(name): value for name, value in found.items()}
    named = {name: value for name, value in named.items() if value is not None}
    fields = decode_json(msgspec.json.encode(named), fields_type)
    _ = fields.model
    return fields


def snake_case(name: str) -> str:
    """Returns the name of a field with underscores: `nDims` becomes `n_dims`."""
    return _HUMP.sub(r"_\1", name).lower()


def camel_case(value: Any) -> Any:
    """Returns a JSON value whose objects' fields have names without underscores: `batch_size`
    becomes `batchSize`."""
    if isinstance(value, Mapping):
        return {_camel_name(name): camel_case(member) for name, member in value.items()}
    if isinstance(value, list):
        return [camel_case(member) for member in value]
    return value


def _camel_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
