"""Draws random sentences from templates.

Notation: `[a]` is optional, `(a|b)` is one of both, `<name>` is a rule. Random sentences, instead
of a list of all, keep the language model's counts close to how often people say a thing, and its
size independent of the number of combinations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

_PART = re.compile(r"[\[\]()|]|<[a-z_]+>|[a-z']+")

TemplateRules = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Words in brackets: one of its alternatives is taken."""

    alternatives: Sequence[Sequence["str | _Rule | _Group"]]
    is_optional: bool = False


def sample(template: str, rules: TemplateRules, random: Random) -> str:
    """Returns a random sentence of `template`.

    Raises ValueError for unbalanced brackets, KeyError for an unknown rule.
    """
    return " ".join(_words(_parsed(template), rules, random))


@cache  # each template is drawn hundreds of times
def _parsed(template: str) -> _Group:
    parts = _PART.findall(template)
    group, rest = _group(parts, 0, closing="")
    if rest != len(parts):
        raise ValueError(f"unbalanced {parts[rest]!r} in template {template!r}")
    return group


def _group(parts: Sequence[str], at: int, *, closing: str) -> tuple[_Group, int]:
    alternatives: list[list[str | _Rule | _Group]] = [[]]
    while at < len(parts) and parts[at] not in ("]", ")"):
        part = parts[at]
        at += 1
        if part == "|":
            alternatives.append([])
        elif part in ("[", "("):
            inner, at = _group(parts, at, closing="]" if part == "[" else ")")
            alternatives[-1].append(inner)
        elif part.startswith("<"):
            alternatives[-1].append(_Rule(part[1:-1]))
        else:
            alternatives[-1].append(part)
    if closing:
        if at == len(parts) or parts[at] != closing:
            raise ValueError(f"missing {closing!r} in template")
        at += 1
    return _Group(alternatives, is_optional=closing == "]"), at


def _words(group: _Group, rules: TemplateRules, random: Random) -> list[str]:
    choices: list[list[str]] = []
    for alternative in group.alternatives:
        words: list[str] = []
        for part in alternative:
            if isinstance(part, str):
                words.append(part)
            elif isinstance(part, _Rule):
                words += _words(_parsed(random.choice(rules[part.name])), rules, random)
            else:
                inner = _words(part, rules, random)
                if not part.is_optional or random.random() < 0.5:
                    words += inner
        choices.append(words)
    return random.choice(choices)
