"""Configuration that WAS sends to a Willow device, and the secrets in it."""

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from core.errors import RequestError
from devices.fleet.directory import Device
from firmware_protocol.willow.messages import Scalar

MASK = "********"
"Shown in place of a secret. When a client sends it back, the secret stays as it is."

SECRETS = frozenset(
    {"hass_token", "openhab_token", "mqtt_password", "rest_auth_pass", "rest_auth_header", "PSK"}
)
"Names of settings that are secret."
_URL_PASSWORD = re.compile(
    r"(?P<user>(?<![a-z0-9+.-])[a-z0-9+.-]+://[^/?#:@]*:)(?P<secret>[^/?#]*)@", re.IGNORECASE
)
"""Password in a URL, as in the `wis_url` of a server that wants its key. The pattern begins only at
the start of a word: otherwise each of a million letters would start a search to the end."""
_SECRET_WORDS = ("token", "pass", "secret", "psk", "key", "auth_header")
"Parts of names of secrets that newer firmware may have."

DEFAULTS: Mapping[str, Scalar] = {
    "aec": True,
    "audio_codec": "PCM",
    "audio_response_type": "TTS",
    "bss": False,
    "command_endpoint": "Home Assistant",
    "display_timeout": 10,
    "lcd_brightness": 500,
    "mic_gain": 14,
    "multiwake": True,
    "record_buffer": 12,
    "speaker_volume": 60,
    "speech_rec_mode": "WIS",
    "stream_timeout": 5,
    "vad_mode": 2,
    "vad_timeout": 300,
    "wake_confirmation": False,
    "wake_mode": "2CH_95",
    "wake_word": "alexa",
    "was_mode": True,
}
"""WAS's defaults, apart from two: the server runs commands itself (`was_mode`), and of several
devices that detect a wake word one answers (`multiwake`)."""

WITHOUT_DEFAULT: Mapping[str, type] = {
    "hass_host": str,
    "hass_port": int,
    "hass_tls": bool,
    "hass_token": str,
    "lvgl_lock_timeout": int,
    "mqtt_auth_type": str,
    "mqtt_host": str,
    "mqtt_password": str,
    "mqtt_port": int,
    "mqtt_tls": bool,
    "mqtt_topic": str,
    "mqtt_username": str,
    "ntp_config": str,
    "ntp_host": str,
    "openhab_token": str,
    "openhab_url": str,
    "rest_auth_header": str,
    "rest_auth_pass": str,
    "rest_auth_type": str,
    "rest_auth_user": str,
    "rest_url": str,
    "show_prereleases": bool,
    "timezone": str,
    "timezone_name": str,
    "wis_tts_url": str,
    "wis_tts_url_v2": str,
    "wis_url": str,
}
"Settings without a default here, and their types."

RANGES: Mapping[str, range] = {
    "display_timeout": range(1, 3601),
    "lcd_brightness": range(1024),
    "mic_gain": range(15),
    "record_buffer": range(1, 65),
    "speaker_volume": range(101),
    "stream_timeout": range(1, 61),
    "vad_mode": range(5),
    "vad_timeout": range(1001),
}
"Allowed values of whole numbers."

WAKE_WORDS = ("alexa", "hiesp", "hilexin")
"Wake words of the firmware's WakeNet9 models."

CHOICES: Mapping[str, tuple[str, ...]] = {
    "audio_codec": ("AMR-WB", "PCM", "WAV"),
    "audio_response_type": ("Chimes", "None", "TTS"),
    "command_endpoint": ("Home Assistant", "MQTT", "openHAB", "REST"),
    "speech_rec_mode": ("Multinet", "WIS"),
}
"Allowed values of texts."

ONLY_WITHOUT_WAS_MODE = (
    "hass_token",
    "mqtt_password",
    "openhab_token",
    "rest_auth_pass",
    "rest_auth_header",
)
"Secrets that a device needs only if it runs commands itself."

MAX_VALUE_CHARS = 512
"Limit of a text value, in characters; WAS's longest values are URLs and tokens."

MAX_VALUES = 100
"Limit of the settings in one configuration; the firmware has far fewer."

_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")


def validate_config(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Checks the configuration in a request; unknown names are kept, as newer firmware has more.

    Raises RequestError, which names the key and the allowed values, and no secret.
    """
    if len(values) > MAX_VALUES:
        raise _refusal("config", f"it has {len(values)} values; the limit is {MAX_VALUES}")
    found = {key: _checked(key, value) for key, value in values.items() if value is not None}
    if base := found.pop("wis_tts_url", ""):
        found["wis_tts_url_v2"] = with_text(str(base))
    return found


def _checked(key: str, value: object) -> Scalar:
    if not _KEY.fullmatch(key):
        raise _refusal(key[:64] or "config", f"{key[:64]!r} is not a valid name of a setting")
    kind = WITHOUT_DEFAULT.get(key) or (type(DEFAULTS[key]) if key in DEFAULTS else None)
    if not isinstance(value, str | int | float | bool):
        raise _refusal(key, "text, a number, true or false")
    if kind is not None and type(value) is not kind:
        kinds = {str: "text", int: "a whole number", bool: "true or false"}
        raise _refusal(key, f"allowed: {kinds[kind]}")
    if isinstance(value, str) and (len(value) > MAX_VALUE_CHARS or not value.isprintable()):
        raise _refusal(key, f"at most {MAX_VALUE_CHARS} printable characters")
    if key in RANGES and value not in RANGES[key]:
        raise _refusal(key, f"allowed: {RANGES[key][0]} to {RANGES[key][-1]}")
    if key in CHOICES and value not in CHOICES[key]:
        raise _refusal(key, f"allowed: {', '.join(CHOICES[key])}")
    return value


def with_text(url: str) -> str:
    """Returns a TTS URL that ends with `text=`, so that the firmware can append the text."""
    base, _, query = url.partition("?")
    kept = [
        parameter
        for parameter in query.split("&")
        if parameter and not parameter.startswith("text=")
    ]
    return f"{base}?{'&'.join([*kept, 'text='])}"


def merged(new: Mapping[str, object], old: Mapping[str, object]) -> dict[str, Any]:
    """Returns `new` with masked secrets replaced by the old ones; a mask without an old secret is
    dropped."""
    kept: dict[str, object] = {}
    for key, value in new.items():
        if value != MASK or not is_secret(key):
            kept[key] = _merged_value(value, old.get(key))
        elif key in old:
            kept[key] = old[key]
    return kept


def _merged_value(new: object, old: object) -> Any:
    if isinstance(new, Mapping):
        return merged(new, old if isinstance(old, Mapping) else {})
    if isinstance(new, list):
        old_items = old if isinstance(old, list) else []
        pairs = zip_longest(new, old_items[: len(new)])
        return [_merged_value(item, old_item) for item, old_item in pairs]
    return _unmasked(new, old) if isinstance(new, str) else new


def _unmasked(new: str, old: object) -> str:
    """Returns the text with the masked passwords of its URLs replaced by those of the old text. The
    first mask gets the first password, and so on."""
    found = _URL_PASSWORD.finditer(old) if isinstance(old, str) else ()
    secrets = iter([stored_url["secret"] for stored_url in found])

    def replaced(match: re.Match[str]) -> str:
        old_secret = next(secrets, "")
        return f"{match['user']}{old_secret if match['secret'] == MASK else match['secret']}@"

    return _URL_PASSWORD.sub(replaced, new)


def is_secret(key: str) -> bool:
    """Returns True if a setting with this name is secret."""
    return key in SECRETS or any(word in key.lower() for word in _SECRET_WORDS)


def has_secret(key: str, value: Scalar) -> bool:
    """Returns True if the name is secret, or a URL with a password is in the value."""
    return is_secret(key) or (isinstance(value, str) and bool(_URL_PASSWORD.search(value)))


def masked(values: Mapping[str, object]) -> dict[str, Any]:
    """Returns the values with secrets masked, to be shown."""
    return {
        key: MASK if value and is_secret(key) else _masked_value(value)
        for key, value in values.items()
    }


def _masked_value(value: object) -> Any:
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list):
        return [_masked_value(item) for item in value]
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\g<user>{MASK}@", value)
    return value


def effective_config(
    device: Device,
    everywhere: Mapping[str, Scalar],
    own: Mapping[str, Scalar],
    base_url: str,
    *,
    with_secrets: bool = True,
) -> dict[str, Scalar]:
    """Returns the configuration for this device.

    Later entries win: WAS's defaults, this server's URLs, settings for all devices, the device's
    profile, its own settings.
    base_url: this server's address as the device uses it.
    with_secrets: False leaves out tokens, passwords and URLs with a password.
    """
    server_urls: dict[str, Scalar] = {
        "wis_url": f"{base_url}/api/willow?device={quote(device.id, safe='')}",
        "wis_tts_url_v2": f"{base_url}/api/tts?{_voice_query(device)}text=",
    }
    chosen = {**everywhere, **_profile_values(device), **own}
    if not with_secrets:
        chosen = {key: value for key, value in chosen.items() if not has_secret(key, value)}
    values = {**DEFAULTS, **server_urls, **chosen}
    if values.get("was_mode") is True:
        for key in ONLY_WITHOUT_WAS_MODE:
            values.pop(key, None)
    return dict(sorted(values.items()))


def _profile_values(device: Device) -> dict[str, Scalar]:
    """Returns the settings of WAS that follow from the device's profile. A wake word that the
    firmware does not have is left out."""
    found: dict[str, Scalar] = {}
    word = "".join(char for char in device.profile.wake_word.lower() if char.isalnum())
    if word in WAKE_WORDS:
        found["wake_word"] = word
    if device.profile.volume is not None:
        found["speaker_volume"] = max(0, min(100, device.profile.volume))
    return found


def _voice_query(device: Device) -> str:
    """Returns the beginning of a URL query with voice and language of the profile."""
    query = {"speaker": device.profile.voice, "language": device.profile.language}
    return "".join(f"{name}={quote(value, safe='')}&" for name, value in query.items() if value)


def _refusal(param: str, allowed: str) -> RequestError:
    return RequestError(f"{param}: {allowed}", code="invalid_value", param=param)
