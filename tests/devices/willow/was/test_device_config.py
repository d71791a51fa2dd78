"""How the configuration of a device is assembled."""

import pytest

from core.errors import Conflict, RequestError
from devices.fleet.directory import Device, DeviceProfile
from devices.willow.was.device_config import (
    DEFAULTS,
    MASK,
    effective_config,
    masked,
    merged,
    validate_config,
    with_text,
)
from devices.willow.was.rest.body import MAX_DEPTH, read_object
from devices.willow.was.rest.handlers import posix_zones
from devices.willow.was.settings_store import NvsSettings, read_nvs
from firmware_protocol.willow.encode import encode
from firmware_protocol.willow.messages import ConfigMessage, Scalar

pytestmark = pytest.mark.live

BASE = "http://192.168.1.2:8502"


def device(**profile: object) -> Device:
    made = DeviceProfile(**profile)  # type: ignore[arg-type]
    return Device(id="dev_1", kind="willow", hardware_id="a", name="a", profile=made)


def test_the_defaults_of_was_fit_the_firmware() -> None:
    values = effective_config(device(), {}, {}, BASE)
    assert {key: values[key] for key in DEFAULTS} == DEFAULTS
    assert values["wis_url"] == f"{BASE}/api/willow?device=dev_1"
    assert values["wis_tts_url_v2"] == f"{BASE}/api/tts?text="
    assert len(encode(ConfigMessage(values))) < 1500


def test_the_more_specific_setting_wins() -> None:
    everywhere: dict[str, Scalar] = {"speaker_volume": 50, "wake_word": "alexa", "vad_timeout": 200}
    values = effective_config(device(volume=40, wake_word="hi-lexin"), everywhere, {}, BASE)
    assert (values["speaker_volume"], values["wake_word"]) == (40, "hilexin")
    own: dict[str, Scalar] = {"speaker_volume": 30, "wis_url": "http://elsewhere/"}
    values = effective_config(device(volume=40), everywhere, own, BASE)
    assert [values[key] for key in ("speaker_volume", "vad_timeout")] == [30, 200]
    assert values["wis_url"] == "http://elsewhere/"


def test_a_wake_word_unknown_to_the_firmware_is_left_out() -> None:
    assert effective_config(device(wake_word="Hey Jarvis"), {}, {}, BASE)["wake_word"] == "alexa"


@pytest.mark.parametrize("was_mode", [True, False])
def test_tokens_are_sent_to_devices_that_run_commands_themselves(*, was_mode: bool) -> None:
    everywhere: dict[str, Scalar] = {"was_mode": was_mode, "hass_token": "secret"}
    assert ("secret" in effective_config(device(), everywhere, {}, BASE).values()) is not was_mode


def test_without_secrets_no_url_contains_one() -> None:
    """A URL with the key would give it to any client that sends a MAC; the default one has none."""
    everywhere: dict[str, Scalar] = {"was_mode": False, "hass_token": "hushed"}
    own: dict[str, Scalar] = {
        "wis_url": "http://any:hushed@earshot.lan:8502/api/willow",
        "rest_url": "HTTPS://me:hushed@house.lan/do",
        "openhab_url": "http://openhab.lan",
    }
    values = effective_config(device(), everywhere, own, BASE, with_secrets=False)
    assert "hushed" not in str(values)
    assert values["wis_url"] == f"{BASE}/api/willow?device=dev_1"
    assert values["openhab_url"] == "http://openhab.lan"
    assert "hushed" in str(effective_config(device(), everywhere, own, BASE))


def test_a_password_in_the_was_url_is_a_secret() -> None:
    nvs = NvsSettings(was_url="ws://any:hushed@earshot.lan/ws", wifi_ssid="home")
    with pytest.raises(Conflict) as refused:
        nvs.message(with_secrets=False)
    assert refused.value.code == "secrets_not_sent"
    assert "hushed" not in str(refused.value)
    assert nvs.message(with_secrets=True).was_url == nvs.was_url


def test_the_tts_url_names_the_voice() -> None:
    values = effective_config(device(voice="a&b", language="de"), {}, {}, BASE)
    assert values["wis_tts_url_v2"] == f"{BASE}/api/tts?speaker=a%26b&language=de&text="


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a/api/tts", "http://a/api/tts?text="),
        ("http://a/api/tts?text=", "http://a/api/tts?text="),
        ("http://a/api/tts?speaker=x&text=y", "http://a/api/tts?speaker=x&text="),
        ("http://a/api/tts?text=y&format=WAV", "http://a/api/tts?format=WAV&text="),
    ],
)
def test_a_tts_url_ends_with_the_text_parameter(url: str, expected: str) -> None:
    assert with_text(url) == expected
    assert validate_config({"wis_tts_url": url}) == {"wis_tts_url_v2": expected}


def test_null_means_unset_and_unknown_names_are_kept() -> None:
    assert validate_config({"bss": None, "from_the_future": 7}) == {"from_the_future": 7}


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(RequestError) as error:
        validate_config({"hass_token": "secret\n"})
    assert "secret" not in str(error.value)


def test_secrets_are_replaced_by_masks() -> None:
    values: dict[str, Scalar] = {"hass_token": "secret", "new_api_key": "secret", "rest_url": ""}
    shown = masked({"a": values, "mqtt_password": ""})
    assert shown["a"] == {**values, "hass_token": MASK, "new_api_key": MASK}
    assert shown["mqtt_password"] == ""
    assert merged(shown["a"], values) == values
    assert merged({"wake_word": MASK}, values) == {"wake_word": MASK}


def test_nvs_settings_are_merged() -> None:
    old = NvsSettings("ws://a/ws", "home", "correct horse")
    assert read_nvs({"WAS": {"URL": "wss://b/ws"}}, old, MASK) == NvsSettings(
        "wss://b/ws", "home", "correct horse"
    )
    assert read_nvs({"WIFI": {"SSID": "new", "PSK": MASK}}, old, MASK).wifi_psk == "correct horse"
    assert "horse" not in repr(old)
    with pytest.raises(RequestError) as error:
        read_nvs({"WIFI": {"PSK": "x" * 64}}, old, MASK)
    assert "xxx" not in str(error.value)


def test_time_zones_are_those_of_this_machine() -> None:
    zones = posix_zones()
    if not zones:
        pytest.skip("this machine has no time zone database")
    assert zones["Etc/UTC"] == "UTC0"
    assert zones["Europe/Berlin"] == "CET-1CEST,M3.5.0,M10.5.0/3"


def test_masks_in_a_devices_settings_keep_the_common_secret() -> None:
    assert merged({"hass_token": MASK, "bss": True}, {}) == {"bss": True}


def test_nested_secrets_are_masked() -> None:
    old: dict[str, object] = {
        "proxies": [{"api_key": "secret", "name": "a"}],
        "mqtt": {"password": "secret"},
        "tokens": ["secret"],
    }
    shown = masked(old)
    assert shown == {
        "proxies": [{"api_key": MASK, "name": "a"}],
        "mqtt": {"password": MASK},
        "tokens": MASK,
    }
    assert merged(shown, old) == old
    assert merged(shown, {"proxies": "none", "mqtt": []}) == {
        "proxies": [{"name": "a"}],
        "mqtt": {},
    }


def test_a_password_in_a_url_is_a_secret() -> None:
    old = {"wis_url": "http://any:KEY@a:19001/api/willow?x=1", "rest_url": "http://b/@c:d"}
    shown = masked(old)
    assert shown == {**old, "wis_url": f"http://any:{MASK}@a:19001/api/willow?x=1"}
    assert merged(shown, old) == old
    moved = {"wis_url": f"http://any:{MASK}@elsewhere/api/willow"}
    assert merged(moved, old) == {"wis_url": "http://any:KEY@elsewhere/api/willow"}


def test_passwords_of_several_urls_are_secrets() -> None:
    old = {"servers": "http://a:one@b,socks5://c:two@d", "rest_url": " http://e:three@f"}
    shown = masked(old)
    assert not any(one in str(shown) for one in ("one", "two", "three"))
    assert merged(shown, old) == old
    changed = {"servers": f"http://a:new@b,socks5://c:{MASK}@d"}
    assert merged(changed, old) == {"servers": "http://a:new@b,socks5://c:two@d"}
    values = effective_config(device(), {}, old, BASE, with_secrets=False)
    assert not {"servers", "rest_url"} & set(values)


def test_masking_a_million_letters_is_quick() -> None:
    """Each of them could begin a URL; trying them one by one would take hours."""
    text = "a" * 1_000_000
    assert masked({"note": text}) == {"note": text}


def test_a_body_is_a_json_object_of_bounded_depth() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert read_object(nested(MAX_DEPTH - 1))
    for wrong in (nested(MAX_DEPTH), nested(500), b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"):
        with pytest.raises(RequestError, match="levels deep"):
            read_object(wrong)
    for wrong in (nested(5000), b"[]", b"{", b'"\xff"'):
        with pytest.raises(RequestError, match="JSON object"):
            read_object(wrong)
