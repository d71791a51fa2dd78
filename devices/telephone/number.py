"""Telephone numbers: one form for all ways to write them, and the numbers inside AudioSocket's
UUIDs. Pure."""

from uuid import UUID

from core.errors import RequestError

NUMBER_DIGITS = range(7, 16)
"""Digits of a number with its country code. ITU-T E.164 allows 15 at most; with fewer than 7 it is
the extension of a telephone in the house."""

PUNCTUATION = str.maketrans("", "", " \u00a0\t.-/()")
"Characters that people put between the digits."

KEYPAD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "22233344455566677778889999")
"Letters of a telephone's keys (ITU-T E.161)."

WITHHELD = frozenset(
    "+" + word.translate(KEYPAD)
    for word in ("ANONYMOUS", "BLOCKED", "RESTRICTED", "UNAVAILABLE", "UNKNOWN")
)
"Numbers that Twilio gives for callers without a number: these words, as they are typed on keys."

UUID_DIGITS = 15
"Digits of a caller's number in a UUID of AudioSocket: its last ones, with zeros before them."


def telephone_number(text: str) -> str:
    """Returns a number in the form of E.164: + and 7 to 15 digits, the country code first.

    Also understands 00 in place of the +, "(0)", and spaces, dots, dashes, slashes and brackets
    between the digits. Raises RequestError.
    """
    plain = text.replace("(0)", "").translate(PUNCTUATION)
    number = f"+{plain[2:]}" if plain.startswith("00") else plain
    digits = number[1:]
    is_valid = digits.isascii() and digits.isdigit() and len(digits) in NUMBER_DIGITS
    if not (number.startswith("+") and is_valid) or digits.startswith("0"):
        raise RequestError(
            f"{text[:40]!r} is no telephone number with its country: allowed is + and 7 to 15"
            " digits, such as +49 30 12345678",
            code="invalid_value",
            param="telephone_numbers",
        )
    if number in WITHHELD:
        raise RequestError(
            f"{number} is what telephone networks give for callers who withhold their number",
            code="invalid_value",
            param="telephone_numbers",
        )
    return number


def caller_uuid(prefix: UUID, number: str) -> UUID:
    """Returns the UUID of a call from this number, as the dialplan makes it. `prefix`: as
    `number_in` wants it. `number`: + and digits, or the digits of an extension."""
    return UUID(prefix.hex[:-UUID_DIGITS] + number.removeprefix("+").zfill(UUID_DIGITS))


def number_in(prefix: UUID, uuid: UUID) -> str | None:
    """Returns the number of the caller that a UUID has in its last 15 digits.

    Empty: the caller withholds it. With fewer than 7 digits it is an extension, without a +. None:
    the UUID has no number. `prefix`: UUID with zeros in place of the digits.
    """
    digits = uuid.hex[-UUID_DIGITS:]
    if uuid.hex[:-UUID_DIGITS] != prefix.hex[:-UUID_DIGITS] or not digits.isdigit():
        return None
    number = digits.lstrip("0")
    return f"+{number}" if len(number) in NUMBER_DIGITS else number
