"""Whole turns of simulated devices: wake word, speech, command, answer."""

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import pytest

from core.ports import DeviceLocation
from devices.fleet.directory import DeviceProfile
from pipeline.session.one_shot import OneShotRequest, OneShotResponse
from pipeline.shared.settings import SessionSettings
from tests.devices.willow.was.servers import SPEECH, Scene, Server, against, mac_of
from tests.devices.willow.was.simulated_device import SimulatedWillow

pytestmark = pytest.mark.live

SILENCE = bytes(32_000)


def commands(server: Server) -> int:
    """Returns the number of questions to the language model."""
    return len(server.scene.inference.llm.asked)


def test_a_stock_device_is_configured_and_answered_once() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        assert device.config is not None
        assert device.config["wis_url"] == f"{server.url}/api/willow?device=dev_0"
        turn = await device.speak(SPEECH)
        assert (turn.won, turn.status, turn.heard["text"]) == (True, 200, "one two")
        assert (turn.ok, turn.speech) == (True, "you said one two.")
        assert turn.sound[:4] == b"RIFF"
        assert (commands(server), len(device.results())) == (1, 1)

    against(act)


def test_transcripts_of_another_inference_server_are_always_executed() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        for number in (1, 2):
            await device.send({"cmd": "endpoint", "data": {"text": "four", "language": "en"}})
            await device.until(lambda number=number: len(device.results()) == number)
        assert device.results() == 2 * [{"ok": True, "speech": "you said it is 4."}]

    against(act)


@pytest.mark.parametrize(
    ("spoken", "query", "heard"),
    [
        ("de", "", "de"),
        ("", "", "en"),
        ("de", "force_language=en", "en"),
    ],
)
def test_speech_is_recognised_in_the_language_of_the_device(
    spoken: str, query: str, heard: str
) -> None:
    async def act(server: Server) -> None:
        server.scene.inference.asr.info = replace(
            server.scene.inference.asr.info, languages=("de", "en")
        )
        device = await server.device()
        server.known.change(mac_of(device), profile=DeviceProfile(language=spoken))
        assert device.config is not None
        device.config = {**device.config, "wis_url": f"{device.config['wis_url']}&{query}"}
        assert (await device.speak(SPEECH)).heard["language"] == heard

    against(act)


def test_a_repeated_command_is_executed_twice() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        for _ in range(2):
            assert (await device.speak(SPEECH)).ok is True
        assert (commands(server), len(device.results())) == (2, 2)

    against(act)


def test_the_conversation_survives_a_reboot() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        await device.speak(SPEECH)
        await device.reboot()
        await device.speak(SPEECH)
        said = [message.text.strip() for message in server.scene.inference.llm.asked[1]]
        assert said == ["one two", "you said one two.", "one two"]

    against(act)


def test_tools_get_the_room_and_answers_follow_the_profile() -> None:
    async def act(server: Server) -> None:
        device = await server.device(room="Kitchen")
        profile = DeviceProfile(voice="high", language="en", volume=33, wake_word="Hi ESP")
        server.known.change(mac_of(device), profile=profile)
        await device.until(lambda: device.config and device.config["wake_word"] == "hiesp")
        assert device.config is not None
        assert device.config["speaker_volume"] == 33
        assert device.config["wis_tts_url_v2"].endswith("?speaker=high&language=en&text=")
        assert (await device.speak(SPEECH)).sound[:4] == b"RIFF"
        conversation = server.scene.inference.exchanges.conversation("dev_0")
        assert conversation.place == DeviceLocation("Kitchen", "dev_0")
        assert conversation.profile is not None
        assert conversation.profile.voice == "high"

    against(act)


def test_a_failed_command_is_reported_and_the_next_one_works() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        server.scene.inference.llm.fails = True
        turn = await device.speak(SPEECH)
        assert (turn.ok, turn.speech) == (False, "Sorry, that did not work.")
        server.scene.inference.llm.fails = False
        assert (await device.speak(SPEECH)).ok is True

    against(act)


def test_a_refused_command_is_reported_in_the_configured_language() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        exchanges = server.scene.inference.exchanges
        async with exchanges.open(OneShotRequest("zero", "dev_0")):
            await device.send({"cmd": "endpoint", "data": {"text": "one", "language": ""}})
            await device.until(device.results)
        assert device.results() == [{"ok": False, "speech": "Das hat leider nicht geklappt."}]

    against(act, Scene(default_settings=SessionSettings(language="de")))


def test_an_unexpected_error_ends_only_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        server.scene.inference.llm.word_s = 0.05
        opened = server.scene.inference.exchanges.open

        def open_(question: OneShotRequest) -> AbstractAsyncContextManager[OneShotResponse]:
            if question.text == "one":
                raise ExceptionGroup("a bug", [ZeroDivisionError()])
            return opened(question)

        monkeypatch.setattr(server.scene.inference.exchanges, "open", open_)
        for text in ("zero", "one", "two"):
            await device.send({"cmd": "endpoint", "data": {"text": text, "language": "en"}})
        await device.until(lambda: len(device.results()) == 3)
        assert [one["ok"] for one in device.results()] == [True, False, True]
        assert len(server.scene.inference.bugs) == 1
        server.scene.inference.bugs.clear()

    against(act)


def test_a_command_dropped_with_its_device_is_executed_when_resent() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        connection = server.door.connected_devices.find("dev_0")
        assert connection is not None
        command = server.door.commands.run_transcript(connection, "one", "en", 0.0)
        await device.cut()
        await server.until(lambda: server.door.connected_devices.find("dev_0") is None)
        second = server.door.commands.run_transcript(connection, "two", "en", 0.0)
        command.may_send_result.set()
        await server.until(lambda: not server.door.commands._queues["dev_0"].is_busy)
        assert commands(server) == 1
        await device.boot()
        await device.send({"cmd": "endpoint", "data": {"text": "two", "language": "en"}})
        await device.until(device.results)
        assert (device.results()[0]["speech"], second.is_repeated) == ("you said two.", True)

    against(act)


def test_silence_is_not_a_command() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        turn = await device.speak(SILENCE)
        assert (turn.status, turn.heard["text"]) == (200, "")
        assert (await device.speak(SPEECH)).ok is True
        assert commands(server) == 1

    against(act)


def test_speech_of_a_device_that_runs_commands_itself_is_only_transcribed() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        asked = {"type": "config", "apply": "true"}
        body = {"was_mode": False, "hass_token": "secret", "multiwake": False}
        assert (await server.client.post("/api/config", params=asked, json=body)).status == 200
        await device.until(lambda: device.config and not device.config["was_mode"])
        assert device.config is not None
        assert device.config["hass_token"] == "secret"
        turn = await device.speak(SPEECH, wake_arbiter=False)
        assert (turn.heard["text"], turn.ok, commands(server)) == ("one two", None, 0)

    against(act, Scene(sends_secrets=True))


def test_the_number_of_waiting_commands_is_limited() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        server.scene.inference.llm.word_s = 0.1
        live = server.presence.find("dev_0")
        assert live is not None
        for number in range(6):
            await device.send({"cmd": "endpoint", "data": {"text": f"{number}"}})
            await server.until(lambda: live.activity == "thinking")
        await device.until(lambda: len(device.results()) == 6)
        assert [one["ok"] for one in device.results()] == [False, *5 * [True]]
        assert [one["speech"] for one in device.results()[1:]] == [
            f"you said {number}." for number in range(5)
        ]

    against(act)


def test_the_server_shows_the_state_and_the_last_turn_of_a_device() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        live = server.presence.find("dev_0")
        assert live is not None
        assert (live.activity, live.timing) == ("idle", None)
        await device.wake()
        await server.until(lambda: live.activity == "listening")
        server.scene.inference.llm.word_s = 0.05
        await device.send({"cmd": "endpoint", "data": {"text": "one"}})
        await server.until(lambda: live.activity == "thinking")
        await device.until(device.results)
        await server.until(lambda: live.activity == "idle")
        assert live.timing is not None
        assert live.timing["gate_open"] >= 100

    against(act)


FATES = (
    "on",
    "reboot",
    "unplugged",
    "twice",
    "no goodbye",
    "mid-speech",
    "before the answer",
)
"What happens to the device before a turn."


def _has_more(device: SimulatedWillow, results: int) -> bool:
    return len(device.results()) > results


def _has_asked(server: Server, times: int) -> bool:
    return commands(server) >= times


async def _turns(server: Server, turns: int) -> None:
    """Runs turns, each of which must be answered once, whatever happened to the device before."""
    lottery = random.Random("willow turns")
    device = await server.device()
    expected, fates = 0, [*FATES] * (turns // len(FATES) + 1)
    lottery.shuffle(fates)
    for number in range(turns):
        match fates[number]:
            case "reboot":
                await device.reboot()
            case "unplugged":
                await device.wake()
                await device.cut()
                await device.boot()
            case "twice":  # its old socket still stands, as after a change of access point
                ghost, device = device, SimulatedWillow(1, device.was_url, address=device.address)
                device.config = ghost.config
                server.stack.push_async_callback(device.off)
                await device.boot()
                await ghost.until(lambda ghost=ghost: ghost.close_code is not None)
                assert ghost.close_code == 1008
            case "no goodbye":
                await device.off(goodbye=False)
                await device.boot()
            case "mid-speech":  # half a sentence is no command
                await device.break_off(SPEECH)
                await device.boot()
            case "before the answer":  # it is one, whoever is there to hear what came of it
                assert (await device.speak_and_go(SPEECH)).heard["text"] == "one two"
                expected += 1
                await device.boot()
                await server.until(lambda: not server.door.commands._queues["dev_0"].is_busy)
        before = len(device.results())
        if number % 10:
            turn = await device.speak(SPEECH, volume=lottery.choice((None, -20.0)))
            assert (turn.heard["text"], turn.ok) == ("one two", True)
        else:
            await device.send({"cmd": "endpoint", "data": {"text": "two"}})
            await device.until(partial(_has_more, device, before))
        expected += 1
        await server.until(partial(_has_asked, server, expected))
        await server.until(lambda: not server.door.commands._queues["dev_0"].is_busy)
        assert commands(server) == expected
        # What it asked before it went may be told when it is back, also as late as this.
        late = fates[number] == "before the answer"
        assert len(device.results()) - before in ((1, 2) if late else (1,))
    assert len(server.known.devices) == 1


def test_turns_with_reboots_drops_and_double_connects() -> None:
    against(lambda server: _turns(server, 14))


@pytest.mark.real
def test_two_hundred_turns_with_reboots_drops_and_double_connects() -> None:
    against(lambda server: _turns(server, 200), deadline_s=300)
