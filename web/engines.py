"""`GET /earshot/engines`: the engines of this server, for the choices on the page."""

from collections.abc import Callable

import msgspec
from aiohttp import web as aioweb

from core.http.routes import JSON, Route
from pipeline.shared.settings import DEFAULT


class ModelOffer(msgspec.Struct, frozen=True):
    """A recognition model, and how it runs."""

    engine: str
    aliases: tuple[str, ...]
    "Other names that requests may use for it."
    size_mb: int
    "Size of its weights on disk, in MB. 0: the engine has no weights of its own."
    is_loaded: bool
    "True if the model is in memory; otherwise its first use loads it."
    memory_mb: int
    "Memory that it takes, of the machine or the GPU, in MB. 0: it is not loaded."
    why: str
    "Device and number type that it runs with, and the reason."


class EngineOffer(msgspec.Struct, frozen=True):
    """One engine of a kind, or one recognition model, usable or not."""

    name: str
    languages: tuple[str, ...]
    "ISO 639-1 codes. `*` means any; empty if the language does not matter."
    installed: bool
    reason: str = ""
    "Reason why it cannot be used; empty if it can."
    model: ModelOffer | None = None
    "Model of a recogniser. None for other kinds."


class WakeWordOffer(msgspec.Struct, frozen=True):
    """A wake word that sessions can wait for."""

    name: str
    phrase: str
    "The words to say."
    languages: tuple[str, ...]
    "Languages whose pronunciation it was trained with."


class EngineChoice(msgspec.Struct, frozen=True):
    """The engine that serves one stage, and the engines that could serve it."""

    chosen: str
    "Name of the engine or recognition model in use."
    why: str
    "Reason for the choice."
    available: tuple[EngineOffer, ...]


class SessionStart(msgspec.Struct, frozen=True):
    """Choices with which a session of the caller begins: those of its key, or the server's."""

    language: str = ""
    "ISO 639-1 code. Empty: none is chosen."
    asr: str = DEFAULT
    "Name of the recogniser."


class EnginesReport(msgspec.Struct, frozen=True):
    """Engines of the server by stage."""

    asr: EngineChoice
    llm: EngineChoice
    tts: EngineChoice
    vad: EngineChoice
    languages: tuple[str, ...]
    "Languages in which a conversation is possible, spoken or written."
    wake_words: tuple[WakeWordOffer, ...] = ()
    session: SessionStart = SessionStart()


EnginesSource = Callable[[], EnginesReport]
"Function that makes the report."


def engine_routes(report: EnginesSource) -> tuple[Route, ...]:
    """Returns the route of the report. `report` is called for every request."""

    async def engines(_: aioweb.Request) -> aioweb.Response:
        return aioweb.Response(
            body=msgspec.json.encode(report()),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    return (
        Route(
            "GET",
            "/earshot/engines",
            engines,
            "List the engines of each kind: the chosen one, the reason, and the other ones.",
            "page",
            responses={200: EnginesReport},
            scope="talk",
        ),
    )
