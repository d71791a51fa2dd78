"""Engine for commands without a model: Home Assistant's sentence templates, and some of our own.

It says that it did not understand a sentence that no template matches. The names of rooms and
devices come from the enums in the tools' schemas.
"""

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from core.ports import ToolSpec

if TYPE_CHECKING:
    from engines.llm.intents.engine import IntentsLlm
    from engines.llm.intents.grammar import IntentMatch


REQUIRES = {
    "hassil": "hassil",
    "home_assistant_intents": "home-assistant-intents",
    "jinja2": "jinja2",
}

_import_lock = Lock()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `intents`: there are none."""


def create(settings: Settings) -> "IntentsLlm":
    """Returns the engine. Each language is loaded by `warm` or on first use."""
    _import_library()
    from engines.llm.intents.engine import IntentsLlm

    return IntentsLlm()


def languages() -> tuple[str, ...]:
    """Returns the ISO 639-1 codes of the languages with sentences and replies."""
    from engines.llm.intents.language import languages as codes

    return codes()


def understand(text: str, language: str, tools: Sequence[ToolSpec]) -> "IntentMatch | None":
    """Returns the meaning of a sentence that begins a conversation; None if it is not understood.

    language: ISO 639-1 code. It blocks up to a second when the language is used first.
    """
    _import_library()
    from engines.llm.intents.follow_up import CommandHistory, resolve_references
    from engines.llm.intents.grammar import grammar
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.language import supported_language

    names = names_of(tools)
    matcher = grammar(supported_language(language), names)
    command = matcher.understand(text) or matcher.understand_loosely(text)
    if command is None:
        return None
    return resolve_references(command, CommandHistory((), tools), names)


def phrases(language: str, tools: Sequence[ToolSpec], limit: int = 5000) -> tuple[str, ...]:
    """Returns at most `limit` spoken sentences, for training the language model of a recogniser.

    Frequent commands have more sentences. Empty for a language without sentences of our own.
    """
    _import_library()
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.phrase_sampling import sample_phrases

    return sample_phrases(language, names_of(tools), limit)


def _import_library() -> None:
    """Imports hassil under a lock.

    Its modules import each other in a circle. Two threads that begin with different modules would
    find an incomplete module, or wait for each other forever.
    """
    with _import_lock:
        import hassil  # noqa: F401
