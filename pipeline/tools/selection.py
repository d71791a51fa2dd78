"""Choice of the tools that a model is offered: those that the conversation may need. Pure.

All tools of a home are 28 kB of every request. The user's words pick the topics: for the home's
tools by a table, for others by the words of their names and descriptions. The choice looks at the
whole conversation and keeps the order of the tools. So it changes only when a new topic comes up,
and LLM servers find the beginning of the prompt in their cache.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from core.ports import ToolSpec
from engines.base import Message
from pipeline.shared.token_estimate import tools_tokens

FEW = 8
"Up to this number of tools all are offered: a choice would save little and may be wrong."
MAX_OF_HOME = 16
"""Most tools of the home; beyond it, topics of older sentences are left out. The newest sentence
gets all that it asks for: two large topics, timers and music, are more than this."""
MAX_OF_OTHERS = 12
"""Most tools of MCP servers and functions together, if they take too much of the context window.
Their descriptions use their own words, perhaps in another language, so the choice is a guess."""
OTHERS_SHARE = 1 / 4
"Share of the context window up to which all of these others are offered. The home comes on top."
UNKNOWN_SHARE = 1 / 2
"The same share while none of them shares a word with the user: there is nothing to choose by."
MIN_WORD_CHARS = 4
"""Least letters of a word that counts; shorter ones are in every description. Only this many first
letters are compared, so that plurals match."""

_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ToolTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools of the home that belong together, and the words that ask for them, by language."""

    tools: tuple[str, ...]
    en: tuple[str, ...] = ()
    de: tuple[str, ...] = ()
    fr: tuple[str, ...] = ()
    es: tuple[str, ...] = ()

    def is_asked_for(self, said: str, language: str) -> bool:
        """Returns whether the words ask for this topic.

        said: lower-case text with a space at both ends.
        """
        parts: tuple[str, ...] = getattr(self, language)
        if language not in COMPOUNDING:
            parts = tuple(f" {part.lstrip()}" for part in parts)
        return not parts or any(part in said for part in parts)


LANGUAGES = ("en", "de", "fr", "es")
"Languages that the table has words for. In others all tools of the home are offered."
COMPOUNDING = ("de",)
"Languages that join words: a word of the table may be the end of a longer one."


def relevant_tools(
    tools: Sequence[ToolSpec],
    messages: Sequence[Message],
    language: str,
    *,
    needs_home: bool = False,
    context_tokens: int | None = None,
) -> Sequence[ToolSpec]:
    """Returns the tools to offer, in their order. Tools that a client declared are never left out.

    needs_home: keep all tools of the home.
    context_tokens: the model's context window; None: unknown.
    """
    kept = {tool.name for tool in tools if tool.is_clients}
    if len(tools) - len(kept) <= FEW:
        return tools
    topics = bundled_topics()
    known = {name for topic in topics.values() for name in topic.tools}
    of_home = [tool.name for tool in tools if tool.name in known and not _is_foreign(tool)]
    others = [tool for tool in tools if tool.name not in (*kept, *of_home)]
    wanted = {*kept, *(call.name for message in messages for call in message.tool_calls)}
    if len(of_home) > FEW and language in LANGUAGES and not needs_home:
        wanted |= _of_home(tools, messages, language, set(of_home))
    else:
        wanted.update(of_home)
    wanted |= _of_others(others, messages, context_tokens)
    return [tool for tool in tools if tool.name in wanted]


def most_tools(tools: Sequence[ToolSpec], context_tokens: int | None = None) -> Sequence[ToolSpec]:
    """Returns the most and largest tools that a conversation may be offered.

    One sentence may ask for everything that the home can do.
    """
    known = {name for topic in bundled_topics().values() for name in topic.tools}
    of_home = [tool for tool in tools if tool.name in known and not _is_foreign(tool)]
    others = [tool for tool in tools if tool not in of_home]
    if _takes_at_most(UNKNOWN_SHARE, context_tokens, others):
        return [*of_home, *others]
    largest = sorted(others, key=lambda tool: len(str(tool.parameters)), reverse=True)
    return [*of_home, *largest[:MAX_OF_OTHERS]]


def _is_foreign(tool: ToolSpec) -> bool:
    """Returns whether it is a tool of an MCP server, which may have the name of one of ours."""
    return bool(tool.fallback_name)


def _of_home(
    tools: Sequence[ToolSpec], messages: Sequence[Message], language: str, there: set[str]
) -> set[str]:
    """Returns the names for all topics of the last sentence, and of older ones while there is
    room."""
    always = [topic for topic in bundled_topics().values() if topic.is_asked_for("", language)]
    found = {name for topic in always for name in topic.tools} & there
    for age, utterance in enumerate(_said(messages)):
        topics = [
            topic for topic in bundled_topics().values() if topic.is_asked_for(utterance, language)
        ]
        by_name = {tool.name for tool in tools if tool.name in there and _names(tool, utterance)}
        for more in (*(there.intersection(topic.tools) for topic in topics), by_name):
            if age == 0 or len(found | more) <= MAX_OF_HOME:
                found |= more
    return found


def _of_others(
    others: Sequence[ToolSpec], messages: Sequence[Message], context_tokens: int | None
) -> set[str]:
    """Returns all names if there is room, else the tools that share most words with the user.

    Of equals the first ones.
    """
    spoken_words = {word for text in _said(messages) for word in _words(text)}
    shared = {tool.name: len(spoken_words & _described(tool)) for tool in others}
    share = OTHERS_SHARE if any(shared.values()) else UNKNOWN_SHARE
    if len(others) <= MAX_OF_OTHERS or _takes_at_most(share, context_tokens, others):
        return set(shared)
    return set(sorted(shared, key=lambda name: -shared[name])[:MAX_OF_OTHERS])


def _takes_at_most(share: float, context_tokens: int | None, tools: Sequence[ToolSpec]) -> bool:
    return context_tokens is None or tools_tokens(tools) <= context_tokens * share


def _said(messages: Sequence[Message]) -> Iterator[str]:
    """Yields the user's sentences, the newest first, as lower-case words between spaces."""
    for message in reversed(messages):
        if message.role == "user":
            words = " ".join(_WORD.findall(message.text.casefold()))
            yield f" {words} "


def _names(tool: ToolSpec, said: str) -> bool:
    """Returns whether the user named a device that is among the tool's parameters."""
    name = tool.parameters.get("properties", {}).get("name", {})
    groups = [name, *name.get("anyOf", ())]
    return any(
        f" {device.casefold()} " in said for group in groups for device in group.get("enum", ())
    )


def _described(tool: ToolSpec) -> set[str]:
    return _words(f"{_CAMEL.sub(' ', tool.name)} {tool.description}".replace("_", " "))


def _words(text: str) -> set[str]:
    """Returns the beginnings of the words that are long enough to mean something."""
    found = _WORD.findall(text.casefold())
    return {word[:MIN_WORD_CHARS] for word in found if len(word) >= MIN_WORD_CHARS}


@cache
def bundled_topics() -> Mapping[str, ToolTopic]:
    """Returns the bundled topics by name."""
    text = (files("pipeline.tools") / "selection.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, ToolTopic])
