"""The models of KServe's protocol and what may be asked of them, for the HTTP and the gRPC door.
Answers are fields with the names of the protocol's messages."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from core.access.limits import CapacityLimit
from core.errors import Conflict, NotFound, RequestError
from core.ports import Clock
from engines.registry import EngineKind
from serving.models.model import AnyModel
from serving.models.registry import ModelListing, ModelRegistry
from serving.remote.models import RemoteModel, RemoteModels
from serving.text.model import Embedder, ServedClip, ServedTextModel
from web.kserve import speech, texts
from web.kserve.metrics import ProcessorMeter, exposition
from web.kserve.speech import SpeechModels, sequence_step, speech_items, transcripts
from web.kserve.statistics import ModelStatistics, Stage
from web.kserve.tensors import InferRequest, InferResponse, Tensor

SPEECH_NAMES = (
    "infer_bls",
    "whisper_bls",
    "whisper",
    "transducer",
    "attention_rescoring",
    "streaming_wenet",
    "infer_pipeline",
    "sensevoice",
)
"Names of deployments of Triton for speech. All of them mean the default recogniser."

KINDS: tuple[EngineKind, ...] = ("asr", "embed", "clip")
"Kinds of models that this protocol serves."

VERSION = "1"
"The one version that each model has."
PLATFORM = "earshot"
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "sequence",
    "statistics",
)

MAX_CALLS = 64
"Largest number of requests to compute at the same time: each may hold a message in memory."
RETRY_AFTER_S = 2

Fields = dict[str, Any]


class KserveService:
    """Answers the requests of the HTTP and the gRPC door."""

    def __init__(
        self,
        speech_models: SpeechModels,
        registry: ModelRegistry,
        remote: RemoteModels,
        clock: Clock,
        is_loaded: Callable[[], bool],
        version: str,
    ) -> None:
        """`remote`: models of other servers; those for embeddings come before our own of the same
        name. `is_loaded`: returns True while the default recogniser is loaded. `version`: that of
        this server."""
        self._speech, self._registry, self._remote = speech_models, registry, remote
        self._clock, self._is_loaded, self._server_version = clock, is_loaded, version
        self._statistics: dict[str, ModelStatistics] = {}
        self._processor = ProcessorMeter()
        self._calls = CapacityLimit(
            MAX_CALLS,
            "{limit} requests are being computed, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_requests",
        )

    def place(self) -> AbstractContextManager[None]:
        """Holds a place for a request to compute. Raises OverloadedError."""
        return self._calls.take()

    async def drain(self) -> None:
        """Accepts no new requests, and waits until those that run are done."""
        await self._calls.drain()

    def is_ready(self) -> bool:
        """Returns True if the default recogniser is loaded and the server does not stop."""
        return self._is_loaded() and not self._calls.is_closed

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Returns True if the model is loaded. Raises NotFound."""
        model = self._find(name, version)
        return isinstance(model, RemoteModel) or model.is_ready

    def server_metadata(self) -> Fields:
        """Returns name, version and extensions of the server."""
        return {
            "name": PLATFORM,
            "version": self._server_version,
            "extensions": list(EXTENSIONS),
        }

    def metadata(self, name: str, version: str = "") -> Fields:
        """Returns the inputs and outputs of a model. Raises NotFound, EngineError."""
        inputs, _, outputs, _ = self._form(self._find(name, version))
        return {
            "name": name,
            "versions": [VERSION],
            "platform": PLATFORM,
            "inputs": list(inputs),
            "outputs": list(outputs),
        }

    def config(self, name: str, version: str = "") -> Fields:
        """Returns the configuration of a model; data types have the names of the protocol. Raises
        NotFound, EngineError."""
        inputs, optional, outputs, max_batch = self._form(self._find(name, version))
        return {
            "name": name,
            "platform": PLATFORM,
            "backend": PLATFORM,
            "max_batch_size": max_batch,
            # The first dimension is that of the batch, which a configuration leaves out.
            "input": [
                {
                    "name": tensor["name"],
                    "data_type": tensor["datatype"],
                    "dims": tensor["shape"][1:] or [1],
                    "optional": tensor["name"] in optional,
                }
                for tensor in inputs
            ],
            "output": [
                {
                    "name": tensor["name"],
                    "data_type": tensor["datatype"],
                    "dims": tensor["shape"][1:] or [1],
                }
                for tensor in outputs
            ],
        }

    def statistics(self, name: str = "", version: str = "") -> Fields:
        """Returns the statistics of a model, or of all that had a request. Raises NotFound."""
        if name:
            self._find(name, version)
        names = [name] if name else sorted(self._statistics)
        return {
            "model_stats": [
                self._statistics.get(name, ModelStatistics()).fields(name, VERSION)
                for name in names
            ]
        }

    def metrics(self) -> str:
        """Returns the statistics of all models that are loaded or had a request, as text for
        Prometheus."""
        ready = (entry["name"] for entry in self.index(only_ready=True))
        names = sorted({*ready, *self._statistics})
        models = {name: self._statistics.get(name, ModelStatistics()) for name in names}
        pending = {name: self._pending(name) for name in names}
        return exposition(models, pending, self._processor, VERSION)

    def index(self, *, only_ready: bool = False) -> list[Fields]:
        """Returns all models with their states."""
        listings = self._registry.listing()
        found = [_entry(listing) for kind in KINDS for listing in listings.get(kind, ())]
        is_ready = self.is_model_ready(SPEECH_NAMES[0])
        state = {"state": "READY"} if is_ready else {"state": "UNAVAILABLE", "reason": ""}
        found += [{"name": name, "version": VERSION, **state} for name in SPEECH_NAMES]
        found += [
            {"name": name, "version": VERSION, "state": "READY"} for name in self._remote_names()
        ]
        return [entry for entry in found if entry["state"] == "READY" or not only_ready]

    async def load(self, name: str) -> None:
        """Loads a model, and waits for it. Raises NotFound, OverloadedError, EngineError."""
        model = self._find(name)
        if isinstance(model, RemoteModel):
            return  # its server loads it
        with model.in_use():
            await model.load()

    async def unload(self, name: str) -> None:
        """Unloads a model, and waits for it. Raises NotFound; Conflict for one that is in use or
        on another server."""
        model = self._find(name)
        if isinstance(model, RemoteModel):
            raise Conflict(f"{name} is loaded by another server", code="model_is_remote")
        await self._registry.unload(model)

    async def infer(self, request: InferRequest, caller: str, arrived_ns: int) -> InferResponse:
        """Computes a request. `caller`: address of the client, to which its sequences belong.
        `arrived_ns`: `perf_counter_ns()` when it arrived.

        Raises RequestError, OverloadedError, EngineError, possibly in a group.
        """
        model = self._find(request.model, request.version)
        began_ns = perf_counter_ns()
        statistics = self._statistics.setdefault(request.model, ModelStatistics())
        try:
            if isinstance(model, RemoteModel | ServedTextModel):
                outputs, size, computed = await self._embed(request, model)
            else:
                outputs, size, computed = await self._recognise(request, caller)
        except BaseException as error:
            statistics.add_failure(perf_counter_ns() - arrived_ns, error)
            raise
        response = InferResponse(request.model, VERSION, request.id, (outputs,))
        stages: Mapping[Stage, int] = {
            "queue": began_ns - arrived_ns,
            "compute_input": computed[0] - began_ns,
            "compute_infer": computed[1] - computed[0],
            "compute_output": perf_counter_ns() - computed[1],
        }
        statistics.add(size, stages, int(1000 * self._clock.wall().timestamp()))
        return response

    async def _recognise(
        self, request: InferRequest, caller: str
    ) -> tuple[Tensor, int, tuple[int, int]]:
        """Returns the output, the number of recordings, and the times before and after
        recognition."""
        _check_outputs(request, speech.OUTPUTS)
        name = _recogniser_name(request.model)
        items = await asyncio.to_thread(speech_items, request)
        options, step = self._speech.options(name, items), sequence_step(request)
        began_ns = perf_counter_ns()
        if step is not None:
            words = [await self._speech.push(caller, name, step, items, options)]
        else:
            words = await self._speech.transcribe(name, items, options)
        times = began_ns, perf_counter_ns()
        return transcripts(words), len(items), times

    async def _embed(
        self, request: InferRequest, model: Embedder | ServedClip | RemoteModel
    ) -> tuple[Tensor, int, tuple[int, int]]:
        info = texts.info_of(model)
        _check_outputs(request, texts.outputs(info))
        asked = texts.embedding_request(request, info)
        began_ns = perf_counter_ns()
        output = await texts.embed(model, asked)
        return output, len(asked.contents), (began_ns, perf_counter_ns())

    def _pending(self, name: str) -> int:
        """Returns how many requests of all doors wait for a model: in its queue, or for its
        load."""
        model = self._lookup(name)
        if model is None or isinstance(model, RemoteModel):
            return 0  # deleted after its last request, or its own server has the queue
        waiting: int = model.uses if model.loaded is None else model.loaded.waiting
        return waiting

    def _form(
        self, model: AnyModel | RemoteModel
    ) -> tuple[Sequence[Fields], frozenset[str], Sequence[Fields], int]:
        """Returns inputs, names of the optional ones, outputs, and the largest batch."""
        if not isinstance(model, RemoteModel | ServedTextModel):
            return speech.INPUTS, speech.OPTIONAL_INPUTS, speech.OUTPUTS, speech.MAX_BATCH
        info = texts.info_of(model)
        inputs = texts.inputs(info)
        optional = frozenset(entry["name"] for entry in inputs if len(inputs) > 1)
        return inputs, optional, texts.outputs(info), texts.MAX_INPUTS

    def _remote_names(self) -> list[str]:
        """Returns the models of other servers that this protocol serves."""
        return [model.name for model in self._remote if model.kind == "embed"]

    def _lookup(self, name: str) -> AnyModel | RemoteModel | None:
        """Returns a model; None if there is none of that name."""
        if remote := self._remote.get("embed", name):
            return remote
        found = (self._registry.get(kind, _recogniser_name(name)) for kind in KINDS)
        return next((model for model in found if model is not None), None)

    def _find(self, name: str, version: str = "") -> AnyModel | RemoteModel:
        """Returns a model. Raises NotFound."""
        if version not in ("", VERSION):
            raise NotFound(
                f"Model {name[:64]!r} has no version {version[:16]!r}; it has {VERSION!r}.",
                code="model_not_found",
                param="version",
            )
        model = self._lookup(name)
        if model is None:
            listings = self._registry.listing()
            names = [listing.offer.name for kind in KINDS for listing in listings.get(kind, ())]
            names += self._remote_names()
            raise NotFound(
                f"Unknown model {name[:64]!r}. Allowed: {', '.join((*names, *SPEECH_NAMES))}.",
                code="model_not_found",
                param="model",
            )
        return model


def _recogniser_name(name: str) -> str:
    return "default" if name in SPEECH_NAMES else name


def _entry(listing: ModelListing) -> Fields:
    is_ready = listing.state == "loaded"
    return {
        "name": listing.offer.name,
        "version": VERSION,
        "state": "READY"
        if is_ready
        else "LOADING"
        if listing.state == "loading"
        else "UNAVAILABLE",
        **({} if is_ready else {"reason": listing.problem or "unloaded"}),
    }


def _check_outputs(request: InferRequest, allowed: Sequence[Fields]) -> None:
    names = [tensor["name"] for tensor in allowed]
    for name in request.outputs:
        if name not in names:
            raise RequestError(
                f"Unknown output {name[:64]!r}. Allowed: {', '.join(names)}.",
                code="unsupported_parameter",
                param=name[:64],
            )
