"""The embedded engine for commands: Home Assistant's sentence templates, and some of our own.

It is strict: to a sentence that no template matches it says that it did not understand.
The names of rooms and devices come from the enums of the tools that it is given.
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
    """Returns the engine. A language is loaded on first use, or earlier by `warm`."""
    _import_library()
    from engines.llm.intents.engine import IntentsLlm

    return IntentsLlm()


def languages() -> tuple[str, ...]:
    """Returns the ISO 639-1 codes of the languages that it understands and answers in."""
    from engines.llm.intents.language import languages as codes

    return codes()


def understand(text: str, language: str, tools: Sequence[ToolSpec]) -> "IntentMatch | None":
    """Returns the meaning of `text` without a conversation before it, or None.

    Blocks while a language is loaded on first use.
    """
    _import_library()
    from engines.llm.intents.follow_up import CommandHistory, completed
    from engines.llm.intents.grammar import grammar
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.language import supported

    names = names_of(tools)
    known = grammar(supported(language), names)
    found = known.understand(text) or known.understand_loosely(text)
    return None if found is None else completed(found, CommandHistory((), tools), names)


def phrases(language: str, tools: Sequence[ToolSpec], limit: int = 5000) -> tuple[str, ...]:
    """Returns at most `limit` sentences as they are spoken, to train language models with.

    Common commands come more often. Empty for a language without templates of our own.
    """
    _import_library()
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.phrase_sampling import sample_phrases

    return sample_phrases(language, names_of(tools), limit)


def _import_library() -> None:
    """Imports hassil under a lock.

    Its modules import each other in a circle: two threads that start at different ends of it find
    half a module, or a deadlock.
    """
    with _import_lock:
        import hassil  # noqa: F401
