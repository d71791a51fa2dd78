"""Hosts of engines in a worker process, which serve the calls of the gateway.

`AsrHost` and `BatchHost` run batches, `StreamHost` runs engines whose results are streams (voices,
language models).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Raw, Struct

from core.audio import Pcm
from core.errors import (
    EarshotError,
    EngineError,
    OverloadedError,
    RemoteProtocolError,
    RequestError,
    chain_of,
)
from engines.base import (
    AsrInfo,
    AsrItem,
    AsrModel,
    AsrResult,
    ClosableEngine,
    ConcurrentAsrModel,
    Llm,
    Tts,
    TtsInfo,
    WordMark,
)
from engines.base.codec import CodecInfo, CodecItem, CodecModel
from engines.base.speaker import SpeakerItem, SpeakerModel, SpeakerModelInfo
from engines.base.text import (
    ClipItem,
    ClipModel,
    EmbedItem,
    EmbedModel,
    RerankItem,
    RerankModel,
    TextModelInfo,
)
from engines.base.voice import SOUND_UNTIL_S, CloningTts, StagedTts, StageTime
from engines.codec.items import convert
from engines.runtime.worker.payloads import (
    CONDITION,
    CONVERT,
    DECODE,
    EMBED,
    FORGET,
    FORGET_VOICE,
    REPLY,
    RERANK,
    SPEAK,
    AsrBatch,
    DeltaMessage,
    ReplyArguments,
    SpeakArguments,
    SpeechMessage,
    VoiceMessage,
    pcm_from_bytes,
    pcm_to_bytes,
)
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    PongReply,
    decode_payload,
)

logger = logging.getLogger(__name__)

MACHINE_ERRORS = (OSError, MemoryError, RuntimeError)
"""Exceptions that memory, files and GPUs cause. Their messages never contain words of a recording,
so they may be logged."""

CHUNK_MS = 500
"""Longest sound in one message, in ms. A whole clause has up to 20 s. The gateway would convert it
in one step, which would delay the packets of all calls."""

Send = Callable[[Struct], None]
"Sends a reply to the gateway. It may be called in any thread."


class EngineHost(Protocol):
    """A loaded engine in a worker. The worker's main thread calls these methods, one at a time."""

    @property
    def info(self) -> object:
        """Properties of the engine, which are sent to the gateway."""
        ...

    def call(self, request: CallRequest[Raw]) -> None:
        """Serves or starts a call. Turns every exception of the engine into a `FailureReply`."""
        ...

    def cancel(self, request_id: int) -> None:
        """Stops a call that still runs."""
        ...

    def ping(self, number: int) -> None:
        """Sends a `PongReply` after all earlier calls were served or started. `number`: its
        number."""
        ...

    def close(self) -> None:
        """Stops all calls and frees the engine."""
        ...


class AsrHost:
    """Serves batches of speech recognition in the calling thread, one after the other. The calls of
    a `ConcurrentAsrModel` are only started there, and may overlap."""

    def __init__(self, model: AsrModel, send: Send) -> None:
        self._model, self._send = model, send
        self._cancel_functions: dict[int, Callable[[], None]] = {}
        "Functions that cancel the running calls of a `ConcurrentAsrModel`, by request id."
        self._lock = Lock()

    @property
    def info(self) -> AsrInfo:
        """Properties of the model."""
        return self._model.info

    def call(self, request: CallRequest[Raw]) -> None:
        """Serves `decode` and `forget`."""
        try:
            if request.method == DECODE:
                self._decode(request.request_id, decode_payload(request.payload, AsrBatch))
            elif request.method == FORGET:
                self._model.forget(decode_payload(request.payload, str))
                self._send(DoneReply(request.request_id, None))
            else:
                self._send(_unknown_method(request))
        except Exception as exc:
            self._fail(exc, request.request_id)

    def cancel(self, request_id: int) -> None:
        """Stops a call of a `ConcurrentAsrModel`. Other models have finished it already."""
        with self._lock:
            cancel = self._cancel_functions.pop(request_id, None)
        if cancel is not None:
            cancel()

    def ping(self, number: int) -> None:
        """Answers at once: all earlier calls were served or started."""
        self._send(PongReply(number))

    def close(self) -> None:
        """Frees the model."""
        self._model.close()

    def _decode(self, request_id: int, batch: AsrBatch) -> None:
        items = [item.to_item() for item in batch.items]
        if isinstance(self._model, ConcurrentAsrModel):
            self._begin(self._model, request_id, items)
            return
        results = self._model.decode(items)
        if len(results) != len(items):
            message = f"{self.info.name}: {len(results)} results for {len(items)} items"
            self._send(FailureReply(EngineError.code, message, request_id))
        else:
            self._send(DoneReply(request_id, results))

    def _begin(self, model: ConcurrentAsrModel, request_id: int, items: Sequence[AsrItem]) -> None:
        """Starts a decode. The reply is sent from the engine's thread when the decode is done."""
        # The engine may call `done` before `begin` returns. Then the call is no longer running.
        finished: list[int] = []

        def done(results: list[AsrResult] | Exception) -> None:
            with self._lock:
                finished.append(request_id)
                self._cancel_functions.pop(request_id, None)
            if isinstance(results, Exception):
                self._fail(results, request_id)
            else:
                self._send(DoneReply(request_id, results))

        cancel = model.begin(items, done)
        with self._lock:
            if not finished:
                self._cancel_functions[request_id] = cancel

    def _fail(self, exc: Exception, request_id: int) -> None:
        self._send(failure_reply(exc, self.info.name, request_id))


ItemT = TypeVar("ItemT")
"Type of one item of a batch."


class BatchHost(Generic[ItemT]):
    """Serves the batches of one method in the calling thread, one after the other."""

    def __init__(
        self,
        model: EmbedModel | RerankModel | ClipModel | SpeakerModel | CodecModel,
        method: str,
        item_type: type[ItemT],
        compute: Callable[[Sequence[ItemT]], Sequence[object]],
        send: Send,
    ) -> None:
        """Creates the host. `method`: name of the method. `item_type`: type of its items.
        `compute`: returns one result for each item."""
        self._model, self._method, self._item_type = model, method, item_type
        self._compute, self._send = compute, send

    @property
    def info(self) -> TextModelInfo | SpeakerModelInfo | CodecInfo:
        """Properties of the model."""
        return self._model.info

    def call(self, request: CallRequest[Raw]) -> None:
        """Computes one batch."""
        if request.method != self._method:
            self._send(_unknown_method(request))
            return
        try:
            items: list[ItemT] = decode_payload(request.payload, list[self._item_type])  # type: ignore[name-defined]
            self._send(DoneReply(request.request_id, self._compute(items)))
        except Exception as exc:
            self._send(failure_reply(exc, self.info.name, request.request_id))

    def cancel(self, request_id: int) -> None:
        """Does nothing: the reply to the call has already been sent."""

    def ping(self, number: int) -> None:
        """Answers at once: all earlier calls were served."""
        self._send(PongReply(number))

    def close(self) -> None:
        """Frees the model."""
        self._model.close()


StreamMethod = Callable[[CallRequest[Raw]], AsyncGenerator[Struct, None]]
"Method of an engine whose result is a stream of messages."


class StreamHost:
    """Runs the calls of an engine in an event loop with its own thread. Calls may overlap."""

    def __init__(
        self,
        engine: object,
        name: str,
        info: object,
        methods: Mapping[str, StreamMethod],
        send: Send,
    ) -> None:
        """Starts the thread. `name`: the engine's name in logs and errors. `info`: its properties.
        `methods`: its methods by name."""
        self.info = info
        self._engine, self._name, self._methods, self._send = engine, name, methods, send
        self._running: dict[int, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._has_started = Event()
        self._calls = asyncio.TaskGroup()
        # A daemon: a process that ends without `close`, as with Ray, must not wait for it.
        self._thread = Thread(target=self._run, name=f"{name}-calls", daemon=True)
        self._thread.start()
        self._has_started.wait()

    def call(self, request: CallRequest[Raw]) -> None:
        """Starts a call."""
        self._loop.call_soon_threadsafe(self._start, request)

    def cancel(self, request_id: int) -> None:
        """Cancels a call that still runs."""
        self._loop.call_soon_threadsafe(self._stop, request_id)

    def ping(self, number: int) -> None:
        """Answers from the event loop, so a loop that hangs does not answer."""
        self._loop.call_soon_threadsafe(self._send, PongReply(number))

    def close(self) -> None:
        """Cancels all calls, closes the engine and ends the thread."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self._calls:
            self._has_started.set()
            await self._end.wait()
            for task in self._running.values():
                task.cancel()
        if isinstance(self._engine, ClosableEngine):
            await self._engine.aclose()

    def _start(self, request: CallRequest[Raw]) -> None:
        task = self._calls.create_task(self._answer(request))
        self._running[request.request_id] = task
        task.add_done_callback(lambda _: self._running.pop(request.request_id))

    def _stop(self, request_id: int) -> None:
        if (task := self._running.get(request_id)) is not None:
            task.cancel()

    async def _answer(self, request: CallRequest[Raw]) -> None:
        try:
            method = self._methods.get(request.method)
            if method is None:
                self._send(_unknown_method(request))
                return
            async with aclosing(method(request)) as chunks:
                async for chunk in chunks:
                    self._send(ChunkReply(request.request_id, chunk))
            self._send(DoneReply(request.request_id, None))
        except Exception as exc:
            self._send(failure_reply(exc, self._name, request.request_id))


def create_host(kind: str, engine: Any, send: Send) -> EngineHost:
    """Returns the host for a loaded engine of one of the kinds that a worker runs."""
    match kind:
        case "asr":
            return AsrHost(engine, send)
        case "tts":
            return create_voice_host(engine, send)
        case "embed":
            return BatchHost(engine, EMBED, EmbedItem, engine.embed, send)
        case "rerank":
            return BatchHost(engine, RERANK, RerankItem, engine.rerank, send)
        case "clip":
            return BatchHost(engine, EMBED, ClipItem, engine.embed, send)
        case "speaker":
            return BatchHost(engine, EMBED, SpeakerItem, engine.embed, send)
        case "codec":
            return BatchHost(engine, CONVERT, CodecItem, partial(convert, engine), send)
        case _:
            return create_llm_host(engine, send)


def create_voice_host(tts: Tts, send: Send) -> StreamHost:
    """Returns the host of a voice."""

    def stage_times() -> list[StageTime]:
        return tts.take_stage_times() if isinstance(tts, StagedTts) else []

    async def speak(request: CallRequest[Raw]) -> AsyncGenerator[SpeechMessage, None]:
        arguments = decode_payload(request.payload, SpeakArguments)
        if arguments.condition and isinstance(tts, CloningTts):
            tts.hold_voice(arguments.voice, arguments.condition)
        words: list[WordMark] = []
        SOUND_UNTIL_S.set(asyncio.get_running_loop().time() + arguments.ahead_ms / 1000)
        frames = tts.speak(
            _single_text(arguments.text),
            language=arguments.language,
            voice=arguments.voice,
            speed=arguments.speed,
            on_word=words.append if arguments.needs_words else None,
        )
        async with aclosing(frames):
            async for frame in frames:
                for pcm in _pieces(frame.pcm, tts.info):
                    yield SpeechMessage(pcm_to_bytes(pcm), words.copy(), stage_times())
                    words.clear()
        if words:
            yield SpeechMessage(b"", words)

    methods: dict[str, StreamMethod] = {SPEAK: speak}
    if isinstance(tts, CloningTts):
        methods |= _cloning_methods(tts)
    return StreamHost(tts, tts.info.name, tts.info, methods, send)


def _cloning_methods(tts: CloningTts) -> Mapping[str, StreamMethod]:
    """Returns the methods of a voice that also speaks in voices made of recordings."""

    async def condition(request: CallRequest[Raw]) -> AsyncGenerator[VoiceMessage, None]:
        pcm = pcm_from_bytes(decode_payload(request.payload, bytes))
        yield VoiceMessage(await tts.voice_condition(pcm))

    async def forget(request: CallRequest[Raw]) -> AsyncGenerator[VoiceMessage, None]:
        tts.forget_voice(decode_payload(request.payload, str))
        yield VoiceMessage()

    return {CONDITION: condition, FORGET_VOICE: forget}


def create_llm_host(llm: Llm, send: Send) -> StreamHost:
    """Returns the host of a language model."""

    async def reply(request: CallRequest[Raw]) -> AsyncGenerator[DeltaMessage, None]:
        arguments = decode_payload(request.payload, ReplyArguments)
        deltas = llm.reply(
            arguments.messages,
            arguments.tools,
            language=arguments.language,
            options=arguments.options,
        )
        async with aclosing(deltas):
            async for delta in deltas:
                yield DeltaMessage.from_delta(delta)

    return StreamHost(llm, llm.name, None, {REPLY: reply}, send)


async def _single_text(text: str) -> AsyncIterator[str]:
    yield text


def _pieces(pcm: Pcm, info: TtsInfo) -> list[Pcm]:
    size = info.rate_hz * CHUNK_MS // 1000
    return [pcm[start : start + size] for start in range(0, len(pcm), size)]


def _unknown_method(request: CallRequest[Raw]) -> FailureReply:
    message = f"the engine has no method {request.method!r}"
    return FailureReply(RemoteProtocolError.code, message, request.request_id)


def failure_reply(exc: Exception, engine: str, request_id: int | None = None) -> FailureReply:
    """Builds the reply for an exception.

    Earshot's errors keep their code, and the gateway reports them. A library's errors are logged
    here with their causes. `request_id`: the failed call; None: the engine could not be loaded.
    """
    match exc:
        case EngineError():  # the gateway adds the engine's name
            return FailureReply(exc.code, exc.detail, request_id)
        case OverloadedError():
            return FailureReply(exc.code, str(exc), request_id, retry_after_s=exc.retry_after_s)
        case RequestError():
            return FailureReply(
                exc.code, str(exc), request_id, is_request_error=True, param=exc.param
            )
        case EarshotError():
            return FailureReply(exc.code, str(exc), request_id)
    # During a call, a message may contain the user's words, unless it is about the machine.
    if request_id is None or isinstance(exc, MACHINE_ERRORS):
        logger.error("%s failed", engine, exc_info=exc)
        return FailureReply("engine_failed", f"{engine}: {type(exc).__name__}: {exc}", request_id)
    logger.error("%s failed: %s", engine, chain_of(exc))
    return FailureReply("engine_failed", f"{engine}: {type(exc).__name__}", request_id)
