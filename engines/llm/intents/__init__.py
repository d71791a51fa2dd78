"""The embedded language model: Home Assistant's sentence templates, and some of our own.

It understands commands strictly: what no template matches is answered honestly, never guessed.
The names of rooms and devices come from the enums of the tools it is given.
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


_importing = Lock()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """There is nothing to set."""


def create(settings: Settings) -> "IntentsLlm":
    """The engine. Sentences are loaded on first use of a language; `warm` does it beforehand."""
    _import_library()
    from engines.llm.intents.engine import IntentsLlm

    return IntentsLlm()


def languages() -> tuple[str, ...]:
    """ISO 639-1 codes of the languages it understands and answers in."""
    from engines.llm.intents.language import languages as codes

    return codes()


def understand(text: str, language: str, tools: Sequence[ToolSpec]) -> "IntentMatch | None":
    """What `text` means, or None. Blocks for the load on the first use of a language."""
    _import_library()
    from engines.llm.intents.grammar import grammar
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.language import supported

    known = grammar(supported(language), names_of(tools))
    return known.understand(text) or known.misheard(text)


def phrases(language: str, tools: Sequence[ToolSpec], limit: int = 5000) -> tuple[str, ...]:
    """At most `limit` sentences as they are spoken, weighted to common commands; for language
    models. Empty for a language without sentences of our own."""
    _import_library()
    from engines.llm.intents.home_names import names_of
    from engines.llm.intents.phrase_sampling import sample_phrases

    return sample_phrases(language, names_of(tools), limit)


def _import_library() -> None:
    """hassil's modules import each other in a circle: two threads that begin at different ends of
    it find half a module, or a deadlock."""
    with _importing:
        import hassil  # noqa: F401
