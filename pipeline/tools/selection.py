"""Selects the tools that the conversation may need, to offer them to the model. Pure.

All tools of a home are 28 kB of every request. The user's words select tools: those of the home by
a table of topics, others by the words of their names and descriptions. The whole conversation
counts, and the order of the tools is kept. So the selection changes only with a new topic, and LLM
servers find the beginning of the prompt in their cache.
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

MAX_UNSELECTED = 8
"Number of tools up to which all are offered: a selection would save little and may be wrong."
MAX_HOME_TOOLS = 16
"""Most tools of the home. If there are more, topics of older sentences are left out. The newest
sentence gets all tools that it asks for, even more: timers and music together have more."""
MAX_OTHER_TOOLS = 12
"""Most other tools (of MCP servers and functions), if all take too much of the context window.
Their descriptions use their own words, perhaps in another language, so the selection is a guess."""
OTHERS_SHARE = 1 / 4
"Share of the context window up to which all other tools are offered."
UNKNOWN_SHARE = 1 / 2
"The same share if no other tool has a word of the user: nothing tells which ones are needed."
MIN_WORD_CHARS = 4
"""Fewest letters of a word that counts, because shorter ones are in every description. Only this
many first letters are compared, so that plurals match."""

_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ToolTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools of the home that belong together, and the words that ask for them, by language."""

    tools: tuple[str, ...]
    en: tuple[str, ...] = ()
    de: tuple[str, ...] = ()
    fr: tuple[str, ...] = ()
    es: tuple[str, ...] = ()

    def is_asked_for(self, sentence: str, language: str) -> bool:
        """Returns True if a sentence asks for this topic.

        sentence: lower-case words with a space at both ends. language: one of LANGUAGES.
        """
        parts: tuple[str, ...] = getattr(self, language)
        if language not in COMPOUNDING:
            parts = tuple(f" {part.lstrip()}" for part in parts)
        return not parts or any(part in sentence for part in parts)


LANGUAGES = ("en", "de", "fr", "es")
"Languages of the table. In other languages all tools of the home are offered."
COMPOUNDING = ("de",)
"Languages that join words, so that a word of the table may be the end of a longer word."


def relevant_tools(
    tools: Sequence[ToolSpec],
    messages: Sequence[Message],
    language: str,
    *,
    needs_home: bool = False,
    context_tokens: int | None = None,
) -> Sequence[ToolSpec]:
    """Returns the tools to offer, in their order. Tools that a client declared are never left out.

    messages: the conversation. language: ISO 639-1 code of the user's words.
    needs_home: True to keep all tools of the home.
    context_tokens: size of the model's context window; None: unknown.
    """
    kept = {tool.name for tool in tools if tool.is_clients}
    if len(tools) - len(kept) <= MAX_UNSELECTED:
        return tools
    topics = bundled_topics()
    known = {name for topic in topics.values() for name in topic.tools}
    of_home = [tool.name for tool in tools if tool.name in known and not _is_mcp_tool(tool)]
    others = [tool for tool in tools if tool.name not in (*kept, *of_home)]
    wanted = {*kept, *(call.name for message in messages for call in message.tool_calls)}
    if len(of_home) > MAX_UNSELECTED and language in LANGUAGES and not needs_home:
        wanted |= _select_home_tools(tools, messages, language, set(of_home))
    else:
        wanted.update(of_home)
    wanted |= _select_other_tools(others, messages, context_tokens)
    return [tool for tool in tools if tool.name in wanted]


def largest_selection(
    tools: Sequence[ToolSpec], context_tokens: int | None = None
) -> Sequence[ToolSpec]:
    """Returns the largest selection that a conversation may get: more and larger tools than others.

    It has all tools of the home, because one sentence may ask for all of them.
    context_tokens: size of the model's context window; None: unknown.
    """
    known = {name for topic in bundled_topics().values() for name in topic.tools}
    of_home = [tool for tool in tools if tool.name in known and not _is_mcp_tool(tool)]
    others = [tool for tool in tools if tool not in of_home]
    if _fit_into_share(UNKNOWN_SHARE, context_tokens, others):
        return [*of_home, *others]
    largest = sorted(others, key=lambda tool: len(str(tool.parameters)), reverse=True)
    return [*of_home, *largest[:MAX_OTHER_TOOLS]]


def _is_mcp_tool(tool: ToolSpec) -> bool:
    """Returns True for a tool of an MCP server, which may have the name of one of the home's."""
    return bool(tool.fallback_name)


def _select_home_tools(
    tools: Sequence[ToolSpec], messages: Sequence[Message], language: str, available: set[str]
) -> set[str]:
    """Returns the names of the home's tools that the user's sentences ask for.

    All topics of the newest sentence count, those of older ones up to MAX_HOME_TOOLS.
    available: names of the home's tools.
    """
    always = [topic for topic in bundled_topics().values() if topic.is_asked_for("", language)]
    found = {name for topic in always for name in topic.tools} & available
    for age, sentence in enumerate(_user_sentences(messages)):
        topics = [
            topic for topic in bundled_topics().values() if topic.is_asked_for(sentence, language)
        ]
        by_name = {
            tool.name for tool in tools if tool.name in available and _names_device(tool, sentence)
        }
        for more in (*(available.intersection(topic.tools) for topic in topics), by_name):
            if age == 0 or len(found | more) <= MAX_HOME_TOOLS:
                found |= more
    return found


def _select_other_tools(
    others: Sequence[ToolSpec], messages: Sequence[Message], context_tokens: int | None
) -> set[str]:
    """Returns all names if there is room, else those that share most words with the user.

    Among tools that share equally many words, the first ones count.
    """
    spoken_words = {word for text in _user_sentences(messages) for word in _words(text)}
    shared = {tool.name: len(spoken_words & _description_words(tool)) for tool in others}
    share = OTHERS_SHARE if any(shared.values()) else UNKNOWN_SHARE
    if len(others) <= MAX_OTHER_TOOLS or _fit_into_share(share, context_tokens, others):
        return set(shared)
    return set(sorted(shared, key=lambda name: -shared[name])[:MAX_OTHER_TOOLS])


def _fit_into_share(share: float, context_tokens: int | None, tools: Sequence[ToolSpec]) -> bool:
    return context_tokens is None or tools_tokens(tools) <= context_tokens * share


def _user_sentences(messages: Sequence[Message]) -> Iterator[str]:
    """Yields the user's sentences, the newest first, as lower-case words between spaces."""
    for message in reversed(messages):
        if message.role == "user":
            words = " ".join(_WORD.findall(message.text.casefold()))
            yield f" {words} "


def _names_device(tool: ToolSpec, sentence: str) -> bool:
    """Returns True if the sentence names a device that the tool's parameters list."""
    name = tool.parameters.get("properties", {}).get("name", {})
    groups = [name, *name.get("anyOf", ())]
    return any(
        f" {device.casefold()} " in sentence for group in groups for device in group.get("enum", ())
    )


def _description_words(tool: ToolSpec) -> set[str]:
    return _words(f"{_CAMEL.sub(' ', tool.name)} {tool.description}".replace("_", " "))


def _words(text: str) -> set[str]:
    """Returns the first MIN_WORD_CHARS letters of each word that is long enough to count."""
    found = _WORD.findall(text.casefold())
    return {word[:MIN_WORD_CHARS] for word in found if len(word) >= MIN_WORD_CHARS}


@cache
def bundled_topics() -> Mapping[str, ToolTopic]:
    """Returns the bundled topics by name."""
    text = (files("pipeline.tools") / "selection.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, ToolTopic])
