"""Models for embeddings and reranking of another server with OpenAI's API. It gets each request as
the client wrote it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from core.limits import CapacityLimit
from engines.llm.openai.pass_through import ForwardedBody, refused_forward
from engines.runtime.openai_http.client import OpenAiHttpClient
from engines.runtime.openai_http.errors import OpenAiHttpError
from serving.text.remote_settings import RemoteKind, RemoteModelSettings

MAX_ANSWER_BYTES = 128 * 2**20
"Largest answer: 2048 vectors of 3072 numbers, 20 bytes each as JSON."

RETRY_AFTER_S = 2
"Seconds that a refused caller is asked to wait."

PATHS: Mapping[RemoteKind, str] = {"embed": "/embeddings", "rerank": "/rerank"}
"Paths of a model server, behind its base URL."


class RemoteTextModel:
    """Model for embeddings or reranking on another server. It connects on first use; call `aclose`
    at the end."""

    def __init__(self, name: str, settings: RemoteModelSettings) -> None:
        """Raises ConfigError for a bad address or key. `name`: name of the model in requests."""
        self.name, self.kind = name, settings.kind
        self._settings = settings
        self._client = OpenAiHttpClient(
            settings.kind,
            name,
            base_url=settings.base_url,
            api_key="",
            api_key_file=settings.api_key_file,
            connect_timeout_s=settings.connect_timeout_s,
        )
        self._places = CapacityLimit(
            settings.max_requests,
            f"{{limit}} requests to {name} are being answered, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_requests",
        )

    async def forward(self, body: Mapping[str, Any], private_texts: Sequence[str]) -> str:
        """Sends a request on, and returns the body of the answer. `private_texts`: texts that no
        error may repeat. Raises OverloadedError too_many_requests, RequestError refused_by_model,
        EngineUnreachable, EngineTimeout, EngineError."""
        answer = ""
        with self._places.take():
            texts = self._client.stream(
                PATHS[self.kind],
                {**body, "model": self._settings.model or self.name},
                partial(ForwardedBody, max_bytes=MAX_ANSWER_BYTES),
                awaited="answer",
                first_timeout_s=self._settings.timeout_s,
                next_timeout_s=self._settings.timeout_s,
            )
            try:
                async with aclosing(texts):
                    async for text in texts:
                        answer = text
            except OpenAiHttpError as error:
                raise refused_forward(error, private_texts) from None
        return answer

    async def aclose(self) -> None:
        """Closes idle connections."""
        await self._client.aclose()


class RemoteTextModels:
    """All models of other servers by name."""

    def __init__(self, models: Sequence[RemoteTextModel]) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Iterator[RemoteTextModel]:
        return iter(self._models.values())

    def get(self, kind: RemoteKind, name: str) -> RemoteTextModel | None:
        """Returns the model of that kind and name; None if there is none."""
        model = self._models.get(name)
        return model if model is not None and model.kind == kind else None

    def first(self, kind: RemoteKind) -> RemoteTextModel | None:
        """Returns the first model of a kind; None if there is none."""
        return next((model for model in self if model.kind == kind), None)

    async def aclose(self) -> None:
        """Closes idle connections."""
        for model in self:
            await model.aclose()
