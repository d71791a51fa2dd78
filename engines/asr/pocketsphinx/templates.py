"""Draws random sentences from templates.

Notation: `[a]` is optional, `(a|b)` is one of both, `<name>` is a rule. Random sentences, instead
of a list of all, keep the language model's counts close to how often people say a thing, and its
size independent of the number of combinations.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

_PART = re.compile(r"[\[\]()|]|<[a-z_]+>|[a-z']+")

TemplateRules = Mapping[str, Sequence[str]]


def sample(template: str, rules: TemplateRules, random: Random) -> str:
    """Returns a random sentence of `template`.

    Raises ValueError for unbalanced brackets, KeyError for an unknown rule.
    """
    parts = _PART.findall(template)
    words, rest = _alternatives(parts, 0, rules, random, closing="")
    if rest != len(parts):
        raise ValueError(f"unbalanced {parts[rest]!r} in template {template!r}")
    return " ".join(words)


def _alternatives(
    parts: Sequence[str], at: int, rules: TemplateRules, random: Random, *, closing: str
) -> tuple[list[str], int]:
    choices: list[list[str]] = [[]]
    while at < len(parts) and parts[at] not in ("]", ")"):
        part = parts[at]
        at += 1
        if part == "|":
            choices.append([])
        elif part in ("[", "("):
            inner, at = _alternatives(parts, at, rules, random, closing="]" if part == "[" else ")")
            if part == "(" or random.random() < 0.5:
                choices[-1] += inner
        elif part.startswith("<"):
            choices[-1] += sample(random.choice(rules[part[1:-1]]), rules, random).split()
        else:
            choices[-1].append(part)
    if closing:
        if at == len(parts) or parts[at] != closing:
            raise ValueError(f"missing {closing!r} in template")
        at += 1
    return random.choice(choices), at
