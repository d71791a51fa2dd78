"""Values of a profile as the command line takes them: for devices and for keys."""

import msgspec

from core.errors import ConfigError

NUMBERS = ("speed", "answer_temperature", "volume")
"Fields of a profile that hold a number."

SWITCHES = {"on": True, "off": False}
"Values of a field that is on or off."


def profile_value(name: str, text: str) -> object:
    """Returns the value of a field as the server's API takes it. An empty text clears the field.
    Raises ConfigError."""
    if name == "tools":
        return text.split(",") if text else None
    if name == "follow_voice":
        if text not in SWITCHES:
            raise ConfigError(f"{name}: {text!r} is neither 'on' nor 'off'")
        return SWITCHES[text]
    if name not in NUMBERS:
        return text
    try:
        return msgspec.json.decode(text, type=float | int) if text else None
    except msgspec.DecodeError:
        raise ConfigError(f"{name}: {text!r} is not a number") from None
