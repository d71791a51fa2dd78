"""Models of other servers with OpenAI's API, which get each request as the client wrote it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import aiohttp

from core.access.limits import CapacityLimit
from core.errors import ConfigError
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.pass_through import forward_error
from engines.llm.openai.settings import Settings as LlmSettings
from engines.runtime.openai_http.client import OpenAiHttpClient, WholeBodyReader
from engines.runtime.openai_http.errors import OpenAiHttpError
from serving.remote.settings import RemoteKind, RemoteModelSettings

MAX_ANSWER_BYTES = 128 * 2**20
"Largest answer that is not streamed: 2048 vectors of 3072 numbers, 20 bytes each as JSON."

RETRY_AFTER_S = 2
"Seconds that a refused caller is asked to wait."

RESERVED_NAMES = ("default", "assistant")
"Names that mean a model of this server in every request."

RemotePath = Literal[
    "/embeddings", "/rerank", "/audio/speech", "/audio/transcriptions", "/audio/translations"
]
"Path of a model server, behind its base URL."


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The next bytes of an answer of another server."""

    data: bytes
    content_type: str
    "The answer's `Content-Type`, such as `text/event-stream`."


class _AnswerParts:
    """The bytes of one response as they come (a `ResponseReader`)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def first(self) -> AnswerPart:
        """Returns the first bytes; an empty body has an empty part."""
        return await self._part()

    async def next(self) -> AnswerPart | None:
        """Returns the next bytes; None at the end."""
        part = await self._part()
        return part if part.data else None

    async def _part(self) -> AnswerPart:
        data = await self._response.content.readany()
        content_type = self._response.headers.get("Content-Type", "application/octet-stream")
        return AnswerPart(data, content_type)


class RemoteModel:
    """One model on another server. It connects on first use; call `aclose` at the end."""

    def __init__(self, name: str, settings: RemoteModelSettings) -> None:
        """Raises ConfigError for a bad name, address or key. `name`: name of the model in
        requests."""
        if name in RESERVED_NAMES:
            names = " and ".join(RESERVED_NAMES)
            raise ConfigError(f"remote.{name}: {names} always mean a model of this server")
        self.name, self.kind = name, settings.kind
        self._settings = settings
        self._name_there = settings.model or name
        self._client = OpenAiHttpClient(
            settings.kind,
            name,
            base_url=settings.base_url,
            api_key="",
            api_key_file=settings.api_key_file,
            connect_timeout_s=settings.connect_timeout_s,
        )
        self.llm = self._language_model() if settings.kind == "llm" else None
        "The engine of a language model; None for other kinds."
        self._places = CapacityLimit(
            settings.max_requests,
            f"{{limit}} requests to {name} are being answered, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_requests",
        )

    @contextmanager
    def place(self) -> Iterator[None]:
        """Holds a place for one request. Raises OverloadedError too_many_requests, draining."""
        with self._places.take():
            yield

    async def forward(
        self, path: RemotePath, body: Mapping[str, object], private_texts: Sequence[str]
    ) -> str:
        """Sends a JSON request on, and returns the whole body of the answer. `private_texts`: texts
        that no error may repeat. Raises OverloadedError too_many_requests, RequestError
        refused_by_model, EngineUnreachable, EngineTimeout, EngineError."""
        answer = ""
        with self.place():
            texts = self._client.stream(
                path,
                {**body, "model": self._name_there},
                partial(WholeBodyReader, max_bytes=MAX_ANSWER_BYTES),
                first_item_name="answer",
                first_timeout_s=self._settings.timeout_s,
                next_timeout_s=self._settings.timeout_s,
            )
            try:
                async with aclosing(texts):
                    async for text in texts:
                        answer = text
            except OpenAiHttpError as error:
                raise forward_error(error, private_texts) from None
        return answer

    async def stream(
        self,
        path: RemotePath,
        body: Mapping[str, object] | Callable[[str], aiohttp.FormData],
        private_texts: Sequence[str],
    ) -> AsyncGenerator[AnswerPart, None]:
        """Sends a request on, and yields the answer as it comes. `body`: JSON, or a function that
        returns the form for the model's name there; it is called again for a second try. Closing
        the generator aborts the request. Raises the same errors as `forward`."""
        with self.place():
            parts = self._client.stream(
                path,
                partial(body, self._name_there)
                if callable(body)
                else {**body, "model": self._name_there},
                _AnswerParts,
                first_item_name="answer",
                first_timeout_s=self._settings.timeout_s,
                next_timeout_s=self._settings.timeout_s,
            )
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            except OpenAiHttpError as error:
                raise forward_error(error, private_texts) from None

    async def drain(self) -> None:
        """Takes no new requests, and waits until those under way are answered."""
        await self._places.drain()

    async def aclose(self) -> None:
        """Closes idle connections."""
        await self._client.aclose()
        if self.llm is not None:
            await self.llm.aclose()

    def _language_model(self) -> OpenAiLlm:
        settings = self._settings
        return OpenAiLlm(
            LlmSettings(
                base_url=settings.base_url,
                model=self._name_there,
                api_key_file=settings.api_key_file,
                images=settings.images,
                # One more than `place` gives: a spoken turn never waits behind other requests.
                max_requests=settings.max_requests + 1,
                connect_timeout_s=settings.connect_timeout_s,
                first_token_timeout_s=settings.timeout_s,
                token_timeout_s=settings.timeout_s,
                answer_timeout_s=settings.timeout_s,
            ),
            self.name,
        )


class RemoteModels:
    """All models of other servers by name."""

    def __init__(self, models: Sequence[RemoteModel] = ()) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Iterator[RemoteModel]:
        return iter(self._models.values())

    def get(self, kind: RemoteKind, name: str) -> RemoteModel | None:
        """Returns the model of that kind and name; None if there is none."""
        model = self._models.get(name)
        return model if model is not None and model.kind == kind else None

    def first(self, kind: RemoteKind) -> RemoteModel | None:
        """Returns the first model of a kind; None if there is none."""
        return next((model for model in self if model.kind == kind), None)

    def language_models(self) -> Mapping[str, OpenAiLlm]:
        """Returns the engines of the language models by name."""
        return {model.name: model.llm for model in self if model.llm is not None}

    async def drain(self) -> None:
        """Takes no new requests, and waits until those under way are answered."""
        async with asyncio.TaskGroup() as tasks:
            for model in self:
                tasks.create_task(model.drain())

    async def aclose(self) -> None:
        """Closes idle connections."""
        for model in self:
            await model.aclose()
