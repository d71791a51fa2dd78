"""What engines this server has, for the page's choices: `GET /earshot/engines`."""

from collections.abc import Callable

import msgspec
from aiohttp import web as aioweb

from core.http.routes import JSON, Route


class ModelOffer(msgspec.Struct, frozen=True):
    """What lies behind a recogniser's name."""

    engine: str
    aliases: tuple[str, ...]
    "Further names it answers to."
    size_mb: int
    "Of its weights on disk; 0: none of its own."
    is_loaded: bool
    "Otherwise its first use loads it."
    memory_mb: int
    "What it takes, of the machine or the GPU; 0 when it is not loaded."
    why: str
    "Where it runs, and how."


class EngineOffer(msgspec.Struct, frozen=True):
    """One engine of a kind, or one recognition model; usable or not."""

    name: str
    languages: tuple[str, ...]
    "ISO 639-1 codes; `*` means any; empty where language does not matter."
    installed: bool
    reason: str = ""
    "Why it cannot be used; empty when it can."
    model: ModelOffer | None = None
    "Recognition only."


class WakeWordOffer(msgspec.Struct, frozen=True):
    """A word that sessions can wait for."""

    name: str
    phrase: str
    "As it is said."
    languages: tuple[str, ...]
    "In whose pronunciation it was trained."


class EngineChoice(msgspec.Struct, frozen=True):
    """What serves one stage, and what else could."""

    chosen: str
    why: str
    available: tuple[EngineOffer, ...]


class EnginesReport(msgspec.Struct, frozen=True):
    asr: EngineChoice
    llm: EngineChoice
    tts: EngineChoice
    vad: EngineChoice
    languages: tuple[str, ...]
    "Languages a conversation can be held in, by voice or in writing."
    wake_words: tuple[WakeWordOffer, ...] = ()


EnginesSource = Callable[[], EnginesReport]


def engine_routes(report: EnginesSource) -> tuple[Route, ...]:
    """The one route of this file; `report` is asked anew for every request."""

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
            "Engines by kind: which one is chosen, why, and what else is there.",
            "page",
            responses={200: EnginesReport},
        ),
    )
