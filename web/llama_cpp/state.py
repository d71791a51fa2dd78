"""Serves llama.cpp's `GET /props` and `GET /slots`: what the language model is, and how busy.

Clients read the size of the context and the number of slots, and wait for a free one. What others
asked is not shown: llama.cpp's own list of slots has the options of every request.
"""

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import OverloadedError
from core.http.routes import JSON, Route
from engines.base import VisionLlm
from pipeline.shared.settings import DEFAULT
from web.openai.chat.models import RETRY_AFTER_S, ChatModel, ChatModels


class LlamaModalities(Struct, frozen=True):
    """The kinds of input that a model takes besides text."""

    vision: bool
    audio: bool = False


class LlamaGenerationSettings(Struct, frozen=True):
    """The part of llama.cpp's default settings that does not depend on a request."""

    n_ctx: int
    "Tokens of prompt and answer together; 0: no limit that callers need to know."


class LlamaProps(Struct, frozen=True):
    """Answer to `GET /props`."""

    default_generation_settings: LlamaGenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    "The model's name once more: paths of this machine are not shown."
    modalities: LlamaModalities
    build_info: str
    endpoint_slots: bool = True
    endpoint_props: bool = False
    "Whether `POST /props` changes settings."
    endpoint_metrics: bool = False
    "Whether `GET /metrics` has llama.cpp's names."


class LlamaSlot(Struct, frozen=True):
    """One entry of the answer to `GET /slots`."""

    id: int
    n_ctx: int
    is_processing: bool
    speculative: bool = False


class LlamaStateDoor:
    """Handles questions about the language model, in the form of llama.cpp's server."""

    def __init__(self, models: ChatModels, product: str) -> None:
        """`product`: name and version of this server."""
        self._models, self._product = models, product

    async def props(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /props`. Raises NotFound model_not_found, Forbidden missing_scope."""
        model = self._model(request)
        llm = self._models.language_model(model)
        return _json(
            LlamaProps(
                LlamaGenerationSettings(llm.context_tokens or 0),
                self._models.slots(model).max_requests,
                model.name,
                model.name,
                LlamaModalities(isinstance(llm, VisionLlm) and llm.accepts_images),
                self._product,
            )
        )

    async def slots(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /slots`. Raises OverloadedError server_full if `fail_on_no_slot` is set and
        all slots are taken, and as `props`."""
        model = self._model(request)
        slots = self._models.slots(model)
        if request.query.get("fail_on_no_slot") and slots.taken >= slots.max_requests:
            raise OverloadedError("no slot available", retry_after_s=RETRY_AFTER_S)
        context_tokens = self._models.language_model(model).context_tokens or 0
        # More requests than slots are possible: the model itself then makes some of them wait.
        return _json(
            [
                LlamaSlot(index, context_tokens, is_processing=index < slots.taken)
                for index in range(slots.max_requests)
            ]
        )

    def _model(self, request: aioweb.Request) -> ChatModel:
        return self._models.find(request.query.get("model", DEFAULT))


def llama_state_routes(door: LlamaStateDoor, tag: str) -> tuple[Route, ...]:
    """Returns the routes. `tag`: heading of the API's page."""
    errors = ("missing_scope", "model_not_found")
    model = {"model": "A language model of `GET /v1/models`."}
    busy = "Any value: 503 `server_full` if every slot is taken."
    return (
        Route(
            "GET",
            "/props",
            door.props,
            "Describe the language model, for clients of llama.cpp's server.",
            tag,
            responses={200: LlamaProps},
            query=model,
            error_codes=errors,
            scope="talk",
        ),
        Route(
            "GET",
            "/slots",
            door.slots,
            "List the slots of the language model, for clients of llama.cpp's server.",
            tag,
            responses={200: list[LlamaSlot]},
            query={**model, "fail_on_no_slot": busy},
            error_codes=(*errors, "server_full"),
            scope="talk",
        ),
    )


def _json(body: LlamaProps | list[LlamaSlot]) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(body), content_type=JSON, headers={"Cache-Control": "no-store"}
    )
