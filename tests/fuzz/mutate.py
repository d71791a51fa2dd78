"""Changes good JSON into bad, value by value; changed bytes alone seldom give valid JSON."""

import random
from typing import Any

ODD_TEXTS = (
    "",
    " ",
    "\0",
    "-1",
    "0",
    "65536",
    "9" * 40,
    "1e999",
    "NaN",
    "null",
    "\n",
    "\r\n",
    "'\"\\",
    "%s{}$.`",
    " - at `$.x`",
    "\ud800",
    "é",
    "\u202e",
    "\u2028",
    "🎤",
    "A" * 3000,
)


def _nested(value: Any, levels: int) -> Any:
    """Returns a value too deep for Python code that recurses, but not for decoders in C."""
    for _ in range(levels):
        value = [value] if isinstance(value, list) else {"": value}
    return value


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    [],
    {},
    _nested([], 600),
    _nested({}, 450),
)


def odd_json(lottery: random.Random, depth: int = 3) -> Any:
    """Returns any JSON value, or one that is invalid as JSON (NaN)."""
    match lottery.randrange(5 if depth else 3):
        case 0:
            return lottery.choice(ODD_TEXTS)
        case 3:
            return [odd_json(lottery, depth - 1) for _ in range(lottery.randrange(4))]
        case 4:
            items = range(lottery.randrange(4))
            return {lottery.choice(ODD_TEXTS): odd_json(lottery, depth - 1) for _ in items}
        case _:
            return lottery.choice(ODD_VALUES)


def mutated_json(lottery: random.Random, value: Any) -> Any:
    """Returns the value with one of its nodes replaced, dropped, added or moved."""
    if isinstance(value, dict) and value and lottery.random() < 0.85:
        key = lottery.choice(list(value))
        out = dict(value)
        match lottery.randrange(6):
            case 0:
                del out[key]
            case 1:
                out[lottery.choice(ODD_TEXTS)] = odd_json(lottery)
            case 2:
                out[key + lottery.choice(ODD_TEXTS)] = out.pop(key)
            case _:
                out[key] = mutated_json(lottery, value[key])
        return out
    if isinstance(value, list) and value and lottery.random() < 0.85:
        at = lottery.randrange(len(value))
        changed = [] if lottery.random() < 0.2 else [mutated_json(lottery, value[at])]
        return [*value[:at], *changed * lottery.randint(1, 2), *value[at + 1 :]]
    return odd_json(lottery)
