"""Serves `/v1/models`: lists the models that requests may name, without loading them."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import NotFound
from engines.registry import EngineKind
from pipeline.shared.settings import DEFAULT, own_model
from serving.models.model import ModelState


class ModelCard(Struct, frozen=True, kw_only=True):
    """One model, in the form of OpenAI's API."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    "Unix time; 0: unknown."
    owned_by: str = "local"
    kind: EngineKind
    "Kind of the model, such as asr. This field and the next ones are extensions of Earshot."
    state: ModelState = "loaded"
    is_default: bool = True
    "True: requests of its kind that name no model get it."
    is_pinned: bool = True
    "True: it stays in memory, whatever other models need."
    memory_bytes: int = 0
    "Memory that it takes now, of the machine or the GPU; 0: not loaded, or not measured."
    size_bytes: int = 0
    "Size of its weights on the disk; 0: it has none of its own."
    dimensions: int = 0
    "Length of the vectors of a model for embeddings; 0 for other kinds."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes; empty if it knows none by itself."
    problem: str = ""
    "Reason why it cannot be used, or why the last load failed; empty if there is none."


class ModelList(Struct, frozen=True, kw_only=True):
    """All models, the default first."""

    object: Literal["list"] = "list"
    data: tuple[ModelCard, ...]


class ModelCardSource(Protocol):
    """Source of the list of models. It must be fast, because clients poll it."""

    def cards(self) -> Sequence[ModelCard]:
        """Returns all models that requests may name, the default first."""
        ...

    def knows(self, name: str) -> bool:
        """Returns True if requests may use this name, which may be an alias of a card's id."""
        ...


def model_list(models: ModelCardSource) -> aioweb.Response:
    """Answers with all models."""
    return _json(ModelList(data=tuple(models.cards())))


def model(models: ModelCardSource, name: str) -> aioweb.Response:
    """Answers with one model. `default` and OpenAI's names stand for the default model.

    Raises NotFound model_not_found.
    """
    cards = {card.id: card for card in models.cards()}
    default_card = next(iter(cards.values()), None)
    is_alias = own_model(name) == DEFAULT or models.knows(name)
    card = cards.get(name) or (default_card if is_alias else None)
    if card is None:
        raise NotFound(
            f"Unknown model {name[:64]!r}. Allowed: {', '.join(cards)}.",
            code="model_not_found",
            param="model",
        )
    return _json(msgspec.structs.replace(card, id=name))


def _json(body: Struct) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type="application/json")
