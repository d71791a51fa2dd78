"""Frames, answers, conversations, services and vocabulary, without a connection."""

import json
from dataclasses import replace
from typing import Any

import pytest

from core.errors import ConfigError, RemoteProtocolError
from devices.home_assistant.conversation import ConversationIds, parse_result
from devices.home_assistant.errors import error_sentence
from devices.home_assistant.protocol import (
    CommandEncoder,
    CommandResult,
    SubscriptionEvent,
    decode,
    decode_greeting,
)
from devices.home_assistant.registries import (
    HomeAssistantArea,
    HomeAssistantEntity,
    HomeAssistantHouse,
)
from devices.home_assistant.services import service_calls
from devices.home_assistant.settings import HomeAssistantSettings
from devices.home_assistant.tools import wants_room
from engines.base import AsrInfo
from pipeline.shared.settings import SessionSettings
from server.config.sections.home_assistant import HomeAssistantConfig
from tests.devices.home_assistant.fake_server import answered

HOUSE = HomeAssistantHouse(
    entities=(
        HomeAssistantEntity("light.kitchen", "light", ("Kitchen Lights",), "kitchen"),
        HomeAssistantEntity("light.desk", "light", ("Desk Lamp", "reading lamp"), "office"),
        HomeAssistantEntity("light.maybe", "light", ("Shelf",), "kitchen", is_surely_exposed=False),
        HomeAssistantEntity("cover.blind", "cover", ("Blind",), "kitchen", "blind"),
        HomeAssistantEntity("lock.front", "lock", ("Front Door",), "kitchen"),
        HomeAssistantEntity("climate.heater", "climate", ("Heater",), "office"),
        HomeAssistantEntity("media_player.radio", "media_player", ("Radio",), "office"),
    ),
    areas=(HomeAssistantArea("kitchen", ("Kitchen",)), HomeAssistantArea("office", ("Office",))),
)


def test_ids_increase_and_frames_may_come_in_arrays() -> None:
    commands = CommandEncoder()
    assert [commands.encode("ping", {})[0] for _ in range(3)] == [1, 2, 3]
    assert json.loads(commands.encode("x", {"a": "ü"})[1]) == {"id": 4, "type": "x", "a": "ü"}
    result = {"id": 1, "type": "result", "success": True, "result": {"a": 1}}
    event = {"id": 2, "type": "event", "event": {"event_type": "e"}}
    both = [CommandResult(1, {"a": 1}), SubscriptionEvent(2, {"event_type": "e"})]
    assert list(decode(json.dumps([result, event, {"type": "new_kind"}]))) == both
    assert list(decode(json.dumps(result))) == both[:1]
    assert list(decode('{"id": 9, "type": "pong"}')) == [CommandResult(9, None)]


def test_an_error_message_of_home_assistant_is_shortened() -> None:
    error = {"code": "not_found", "message": "x" * 9999}
    frame = json.dumps({"id": 1, "type": "result", "success": False, "error": error})
    (found,) = decode(frame)
    assert isinstance(found, CommandResult)
    assert found.error is not None
    assert (found.error.their_code, len(str(found.error))) == ("not_found", 311)


@pytest.mark.parametrize("frame", ["", "{", "[1]", '{"type": 3}', '{"type": "result", "id": true}'])
def test_bytes_that_are_not_a_message_end_the_connection(frame: str) -> None:
    with pytest.raises(RemoteProtocolError):
        list(decode(frame))
    with pytest.raises(RemoteProtocolError):
        decode_greeting("[]")


def test_an_answer_is_read_in_all_its_forms() -> None:
    done = answered("Turned on", conversation_id="c-9", continue_conversation=True)
    done["response"]["data"]["success"] = [{"name": "Lamp", "type": "entity", "id": "light.a"}, 3]
    answer = parse_result(done)
    assert (answer.speech, answer.conversation_id, answer.continues) == ("Turned on", "c-9", True)
    assert [one.id for one in answer.succeeded] == ["light.a"]
    failed = parse_result(answered("Sorry", code="no_valid_targets"))
    assert (failed.is_error, failed.code) == (True, "no_valid_targets")
    done["response"]["speech"] = {"ssml": {"speech": "<speak>Hello <b>you</b></speak>"}}
    assert parse_result(done).speech == "Hello you"
    assert parse_result(answered("")).speech == ""


@pytest.mark.parametrize("odd", [None, 7, {}, {"response": []}, {"response": {}}])
def test_a_malformed_answer_is_an_error(odd: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_result(odd)


def test_conversations_continue_until_home_assistant_forgets_them() -> None:
    threads = ConversationIds()
    assert threads.id("ours", 0) is None
    threads.record_answer("ours", "theirs", 0, is_asking=True)
    assert threads.id("ours", 300) == "theirs"
    assert threads.id("others", 1) is None
    assert [threads.is_asking("ours", now_s) for now_s in (60, 61)] == [True, False]
    assert threads.id("ours", 301) is None
    threads.record_answer("ours", "theirs", 400, is_asking=False)
    threads.record_answer("ours", "", 401, is_asking=False)
    assert threads.id("ours", 402) is None
    for number in range(1001):
        threads.record_answer(f"c{number}", "t", 500, is_asking=False)
    assert (threads.id("c0", 501), threads.id("c1", 501)) == (None, "t")


@pytest.mark.parametrize(
    ("intent", "slots", "wanted"),
    [
        ("HassTurnOn", {"name": "kitchen lights"}, ["light.turn_on light.kitchen"]),
        ("HassTurnOff", {"name": "READING lamp"}, ["light.turn_off light.desk"]),
        ("HassTurnOn", {"area": "kitchen", "domain": "light"}, ["light.turn_on light.kitchen"]),
        ("HassTurnOn", {"name": "blind", "domain": "cover"}, ["cover.open_cover cover.blind"]),
        ("HassLightSet", {"name": "desk lamp", "brightness": 20}, ["light.turn_on light.desk"]),
        ("HassLightSet", {"name": "desk lamp"}, []),
        ("HassClimateSetTemperature", {"name": "heater", "temperature": "warm"}, []),
        (
            "HassSetVolume",
            {"name": "radio", "volume_level": 30},
            ["media_player.volume_set media_player.radio"],
        ),
        ("HassTurnOff", {"name": "front door"}, []),
        ("HassTurnOn", {"domain": "light"}, []),
        ("HassTurnOn", {"area": "kitchen"}, []),
        ("HassTurnOn", {"name": "desk lamp", "area": "kitchen"}, []),
        ("HassTurnOn", {"name": "shelf"}, []),
        ("HassStartTimer", {"minutes": 5}, []),
    ],
)
def test_commands_become_service_calls(
    intent: str, slots: dict[str, Any], wanted: list[str]
) -> None:
    calls = service_calls(HOUSE, intent, slots)
    told = [f"{one.domain}.{one.service} {' '.join(one.data['entity_id'])}" for one in calls]
    assert told == wanted


def test_service_calls_have_numbers_in_their_units() -> None:
    (volume,) = service_calls(HOUSE, "HassSetVolume", {"name": "radio", "volume_level": 30})
    assert volume.data["volume_level"] == pytest.approx(0.3)
    (light,) = service_calls(
        HOUSE, "HassLightSet", {"name": "desk lamp", "brightness": 20, "color": "red"}
    )
    assert light.data == {
        "brightness_pct": 20,
        "color_name": "red",
        "entity_id": ["light.desk"],
    }


def test_commands_without_a_place_mean_the_room_of_the_device() -> None:
    assert wants_room("HassTurnOn", {"domain": "light"})
    assert not wants_room("HassTurnOn", {"domain": "light", "area": "kitchen"})
    assert not wants_room("HassTurnOn", {"domain": "light", "everywhere": True})
    assert not wants_room("HassMediaPause", {})


@pytest.mark.parametrize("code", ["house_unreachable", "house_refused", "house_timeout"])
def test_failures_have_a_sentence_in_four_languages(code: str) -> None:
    assert len({error_sentence(code, language) for language in ("en", "de-CH", "fr", "es")}) == 4
    assert error_sentence(code, "nl") == error_sentence(code, "en")
    assert error_sentence("brand_new", "en") == error_sentence("house_failed", "en")


def test_the_forms_of_a_home_assistant_url() -> None:
    plain = HomeAssistantSettings(url="http://home:8123/", token="secret")
    secure = HomeAssistantSettings(url="https://home", token="secret")
    assert plain.websocket_url == "ws://home:8123/api/websocket"
    assert secure.websocket_url == "wss://home/api/websocket"
    assert "secret" not in repr(plain)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"url": "home:8123"}, "http://"),
        ({"url": "http://me:pw@home"}, "must not contain a user or password"),
        ({"url": "http://h", "token": "a", "token_file": "b"}, "either"),
        (
            {"url": "http://h", "agent_id": "conversation.earshot"},
            "cannot send sentences to itself",
        ),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        HomeAssistantConfig(**wrong)


def test_a_token_is_required_from_the_settings_or_a_file(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    config = HomeAssistantConfig(url="http://h:1/", token_file=str(file))
    assert config.as_settings().token == "of-the-file"
    assert config.as_mcp_server().url == "http://h:1/api/mcp"
    assert "of-the-file" not in repr(config.as_mcp_server())
    with pytest.raises(ConfigError, match="token: required"):
        HomeAssistantConfig(url="http://h").as_settings()
    with pytest.raises(ConfigError, match="No such file"):
        HomeAssistantConfig(url="http://h", token_file=str(tmp_path / "gone")).as_settings()
    assert "secret" not in repr(HomeAssistantConfig(url="http://h", token="secret"))


def test_names_are_passed_to_recognisers_that_can_use_them() -> None:
    able = AsrInfo("w", "m", ("en",), 1, is_incremental=False, supports=("hotwords",))
    names, settings = ("Kitchen", "Lamp"), SessionSettings(keywords=("Ada", "Lamp"))
    for info, wanted in (
        (replace(able, has_prompt_training=True), "Ada, Lamp, Kitchen"),
        (able, "Ada, Lamp"),
        (replace(able, supports=(), has_prompt_training=True), "Ada, Lamp"),
    ):
        assert settings.recognition(info, names).hotwords == wanted
