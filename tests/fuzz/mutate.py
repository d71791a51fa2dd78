"""Makes good data bad: small changes reach further into a parser than noise does."""

import json
import random
from typing import Any

ODD_BYTES = (0, 1, 0x20, 0x7F, 0x80, 0xFE, 0xFF)
ODD_INTS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
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
)


def mutated_bytes(lottery: random.Random, data: bytes) -> bytes:
    """One to six changes: bits, bytes, numbers, spans, the end."""
    out = bytearray(data)
    for _ in range(lottery.randint(1, 6)):
        at = lottery.randrange(len(out) + 1)
        span = lottery.randint(1, 12)
        match lottery.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << lottery.randrange(8)
            case 1 if at < len(out):
                out[at] = lottery.choice(ODD_BYTES)
            case 2:
                out[at:at] = lottery.randbytes(span)
            case 3:
                del out[at : at + span]
            case 4:
                out[at:at] = out[at : at + span]
            case 5:
                number = lottery.choice(ODD_INTS).to_bytes(4, "big")
                out[at : at + 4] = number if lottery.random() < 0.5 else number[::-1]
            case _ if lottery.random() < 0.3:
                del out[at:]
    return bytes(out)


def mutated_text(lottery: random.Random, text: str) -> str:
    """One to four changes: characters, odd texts, spans, the end."""
    for _ in range(lottery.randint(1, 4)):
        at = lottery.randrange(len(text) + 1)
        span = lottery.randint(1, 12)
        match lottery.randrange(5):
            case 0:
                text = text[:at] + chr(lottery.randrange(32, 127)) + text[at + 1 :]
            case 1:
                text = text[:at] + lottery.choice(ODD_TEXTS) + text[at:]
            case 2:
                text = text[:at] + text[at + span :]
            case 3:
                text = text[: at + span] + text[at:]
            case _ if lottery.random() < 0.3:
                text = text[:at]
    return text


def mutated_lines(lottery: random.Random, text: str) -> str:
    """One to four lines dropped, doubled, moved, changed or brought in from elsewhere."""
    lines = text.splitlines()
    for _ in range(lottery.randint(1, 4)):
        at = lottery.randrange(len(lines)) if lines else 0
        match lottery.randrange(5):
            case 0:
                del lines[at : at + 1]
            case 1:
                lines[at:at] = lines[at : at + lottery.randint(1, 8)]
            case 2 if lines:
                lines.insert(lottery.randrange(len(lines)), lines.pop(at))
            case _ if lines:
                lines[at] = mutated_text(lottery, lines[at])
    return "\r\n".join(lines) + "\r\n"


def odd_json(lottery: random.Random, depth: int = 3) -> Any:
    """Any JSON value, and some that are none (NaN)."""
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
    """The value with one of its nodes replaced, dropped, added or moved."""
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


def as_json_text(lottery: random.Random, value: Any) -> str:
    """Mostly JSON; now and then changed once more as text."""
    text = json.dumps(value, ensure_ascii=lottery.random() < 0.5)
    return mutated_text(lottery, text) if lottery.random() < 0.15 else text
