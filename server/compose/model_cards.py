"""Lists the models for `/v1/models`."""

from collections.abc import Iterable
from dataclasses import dataclass

from engines.registry import EngineKind
from server.compose.engines import Engines
from serving.models.registry import ModelListing
from serving.remote.models import RemoteModel
from web.openai.chat.models import ASSISTANT
from web.openai.models import ModelCard


@dataclass(frozen=True, slots=True)
class ModelCards:
    """Model list of `/v1/models`: the models that can be loaded and unloaded, recognisers first,
    then the language model, the voice and the assistant."""

    _engines: Engines
    _is_strict: bool
    "Setting `models.strict`: unknown model names are refused."

    def cards(self) -> tuple[ModelCard, ...]:
        """Lists the models."""
        served = [
            _card(kind, listing)
            for kind, listings in self._engines.registry.listing().items()
            for listing in listings
            if listing.state != "unusable"
        ]
        kinds: tuple[EngineKind, ...] = ("llm", "tts")
        others = (ModelCard(id=self._engines.choices[kind].name, kind=kind) for kind in kinds)
        remote = (
            ModelCard(
                id=model.name,
                kind=model.kind,
                owned_by="remote",
                is_default=self._is_default(model),
            )
            for model in self._engines.remote
        )
        # The default language model comes before the assistant.
        return (*served, *others, *remote, ModelCard(id=ASSISTANT, kind="llm"))

    def _is_default(self, model: RemoteModel) -> bool:
        """Returns True if requests that name no model get this one of another server."""
        engines = self._engines
        if model.kind not in ("embed", "rerank"):
            return False
        own: Iterable[str] = engines.embedders if model.kind == "embed" else engines.rerankers
        return not [*own] and model is engines.remote.first(model.kind)

    def knows(self, name: str) -> bool:
        """Returns True if requests may use this model name."""
        return not self._is_strict or self._engines.asr.get(name) is not None


def _card(kind: EngineKind, listing: ModelListing) -> ModelCard:
    return ModelCard(
        id=listing.offer.name,
        kind=kind,
        state=listing.state,
        is_default=listing.is_default,
        is_pinned=listing.is_pinned,
        memory_bytes=round(listing.memory_mb * 2**20),
        size_bytes=round(listing.offer.size_mb * 1e6),
        dimensions=listing.dimensions,
        languages=listing.languages,
        problem=listing.problem,
    )
