"""The input of WAS's REST API: bodies of any shape, settings, Wi-Fi, files, names."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.errors import PayloadTooLarge, RequestError
from devices.fleet.directory import Device
from devices.fleet.ota import check_name
from devices.willow.was.device_config import (
    DEFAULTS,
    MASK,
    effective_config,
    has_secret,
    masked,
    merged,
    validate_config,
)
from devices.willow.was.rest.body import MAX_DEPTH, read_object, read_path
from devices.willow.was.rest.handlers import MAX_CHARS, _id, _switch, read_name_and_area
from devices.willow.was.settings_store import NvsSettings, read_nvs
from devices.willow.wis.params import switch_of, text_of, whole_of
from firmware_protocol.willow.decode import MAX_ID
from firmware_protocol.willow.encode import MAX_MESSAGE_BYTES, encode
from firmware_protocol.willow.messages import ConfigMessage
from tests.fuzz.target import Target, lines

BODIES: tuple[Any, ...] = (
    {"hostname": "willow-kitchen"},
    {"mac_addr": "a1:b2:c3:d4:e5:f6", "label": "Kitchen", "area": "kitchen"},
    {"hostname": "k", "data": {"id": 7, "text": "tea", "backlight": "on", "repeat": 2}},
    {"data": {"id": 7, "cancel": True, "backlight_max": False, "strobe_period_ms": "500"}},
    {"wake_word": "hiesp", "speaker_volume": 40, "aec": False, "hass_token": MASK},
    {"wis_tts_url": "http://a/api/tts?speaker=x&text=y", "rest_url": f"http://u:{MASK}@b/"},
    {"urls": ["http://u:p@b/,http://v:q@c/"], "proxies": [{"api_key": "k", "name": "a"}]},
    {"WAS": {"URL": f"wss://any:{MASK}@a/ws"}, "WIFI": {"SSID": "home", "PSK": MASK}},
    {"path": "1.2.3/ESP32-S3-BOX-3.bin"},
)
OLD: Mapping[str, Any] = {
    "hass_token": "hushed",
    "rest_url": "http://old:hushed@b/",
    "urls": ["http://old:hushed@b/,http://old:hushed@c/"],
    "proxies": [{"api_key": "hushed"}],
    "WIFI": {"PSK": "hushed"},
}
NVS = NvsSettings("ws://any:hushed@a/ws", "home", "hushed hushed")
DEVICE = Device(id="dev_1", kind="willow", hardware_id="a", name="a")
NUMBERS = {"repeat": range(1, 101), "volume": range(101), "strobe_period_ms": range(10_001)}
PASSWORD = re.compile(r"[a-z]://[^/?#:@]*:(?!\*{8}@)[^/?#@]*@")
"Matches a password that is not masked."


def was_bodies(data: bytes) -> None:
    """Checks that each part of a body gives a value within its bounds, or an error that names it;
    that a shown body has no secret, and that sending it back changes nothing."""
    _path(data)
    try:
        body = read_object(data)
    except RequestError as error:
        assert error.code == "invalid_json"
        return
    assert msgspec.json.decode(msgspec.json.encode(body)) == body
    _masking(body)
    _settings(body)
    _nvs(body)
    _asked(body)


def _path(data: bytes) -> None:
    try:
        version, board = read_path(data)
        path = f"{check_name('version', version)}/{check_name('platform', board)}.bin"
    except RequestError as error:
        _check_told(error)
        return
    assert re.fullmatch(r"[\w+-][\w.+-]*/[\w+-][\w.+-]*\.bin", path, re.ASCII)
    assert ".." not in path.split("/")


def _masking(body: dict[str, Any]) -> None:
    """Checks the masking of secrets with any JSON, as with `type=was`."""
    shown = masked(body)
    assert masked(shown) == shown
    assert merged(shown, body) == body
    assert not any(PASSWORD.search(text) for text in _texts(shown))
    kept = merged(body, OLD)
    assert "hushed" not in str(masked(kept)) or "hushed" in str(masked(body))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _settings(body: dict[str, Any]) -> None:
    try:
        values = validate_config(merged(body, {}))
    except RequestError as error:
        _check_told(error)
        return
    if "wis_tts_url" not in body:  # this value grows with each pass
        assert validate_config(values) == values
    try:
        wire = encode(ConfigMessage({**DEFAULTS, **values}))
    except PayloadTooLarge:
        pass
    else:
        assert len(wire.encode()) <= MAX_MESSAGE_BYTES
        assert msgspec.json.decode(wire)["config"] == {**DEFAULTS, **values}
    told = effective_config(DEVICE, values, {}, "http://a:1", with_secrets=False)
    assert not any(has_secret(key, value) for key, value in told.items())
    assert set(DEFAULTS) <= set(told)


def _nvs(body: dict[str, Any]) -> None:
    try:
        nvs = read_nvs(merged(body, NVS.as_json()), NVS, MASK)
    except RequestError as error:
        _check_told(error)
        return
    assert nvs.was_url.startswith(("ws://", "wss://"))
    assert 1 <= len(nvs.wifi_ssid.encode()) <= 32
    assert 8 <= len(nvs.wifi_psk.encode()) <= 63
    assert read_nvs(merged(masked(nvs.as_json()), nvs.as_json()), nvs, MASK) == nvs


def _asked(body: dict[str, Any]) -> None:
    for data in (body, body.get("data")):
        if isinstance(data, dict):
            _fields(data)
    try:
        named = read_name_and_area(body)
    except RequestError as error:
        _check_told(error)
    else:
        assert named != (None, None)
        assert named[0] != ""
        for one in named:
            assert one is None or (len(one) <= MAX_CHARS and one.isprintable())
            assert one is None or " ".join(one.split()) == one


def _fields(data: dict[str, Any]) -> None:
    try:
        number = _id(data)
        assert number is None or 1 < number < MAX_ID
        for name in ("backlight", "backlight_max"):
            assert _switch(data, name) in (None, True, False)
        switch_of(data, "cancel")
        for name in ("hostname", "mac_addr", "text", "audio_url"):
            assert text_of(data, name) == text_of(data, name).strip()
        for name, allowed in NUMBERS.items():
            found = whole_of(data, name, allowed)
            assert found is None or found in allowed
    except RequestError as error:
        _check_told(error)


def _check_told(error: RequestError) -> None:
    assert error.code in {"invalid_json", "invalid_value"}
    assert error.param or error.code == "invalid_json"
    assert len(str(error)) < 500
    assert "hushed" not in str(error)
    str(error).encode()


TARGETS = (
    Target(
        name="was_bodies",
        one_input=was_bodies,
        seeds=(
            *lines(BODIES),
            b'{"a":' * 480 + b"1" + b"}" * 480,
            b'{"a":' * (MAX_DEPTH - 1) + b"1" + b"}" * (MAX_DEPTH - 1),
        ),
        words=("://", ":p@", MASK, "http://u:p@h", "text=", "hass_token", '"path":"', "../"),
        is_json=True,
    ),
)
