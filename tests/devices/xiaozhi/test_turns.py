"""Conversations of a simulated board that knows only its protocol."""

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest

from core.ports import DeviceLocation, ToolContext
from devices.fleet.presence import DeviceNotification, StoppableDevice
from devices.xiaozhi.device_tools import DeviceUnavailable
from engines.base import TextDelta, ToolCall
from tests.devices.xiaozhi.servers import Scene, Server, SineTts, ToneAsr, against
from tests.devices.xiaozhi.simulated_board import Board, decoded
from tests.pipeline.fakes import EchoLlm
from tests.pipeline.scripted_voices import ANNA, BEN, ScriptedVoices

pytestmark = pytest.mark.live


class FixedLlm(EchoLlm):
    """A language model that always gives the same answer."""

    async def reply(self, *_: Any, **__: Any) -> AsyncGenerator[TextDelta | ToolCall, None]:
        for word in ("First", "clause", "of", "all", "here.", "The", "second", "one."):
            yield TextDelta(word + " ")


async def until(board: Board, packets: int) -> None:
    """Waits until it has played so many packets."""
    while True:
        if len(board.played) >= packets:
            return
        await asyncio.sleep(0.01)


async def thinking(server: Server, board: Board) -> None:
    """Waits until its utterance has ended at the server."""
    live = server.scene.presence.find(server.scene.directory.known[board.mac].id)
    assert live is not None
    while True:
        if live.activity == "thinking":
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("framing", [1, 2, 3])
def test_a_turn_in_every_framing(framing: int) -> None:
    async def act(server: Server) -> None:
        board = await server.ready(framing=framing)
        assert await board.turn("one", "two") == ("one two", ["you said one two."])
        await board.until("listening")
        assert board.left_at_stop == [0]
        assert board.lost == 0
        assert board.queued_most <= 6
        pcm = decoded(board.played)
        assert len(pcm) == 48 * 60 * len(board.played)
        sounding = np.count_nonzero(np.abs(pcm) > 1000) / (1 - 2 / math.pi * math.asin(1 / 9))
        assert 290 <= 1000 * sounding / 48_000 <= 320  # of 300 ms: nothing is cut off
        await board.hang_up()

    against(act)


def test_many_turns_in_every_mode() -> None:
    """Three boards talk at once."""

    async def turns(server: Server, mac: str, mode: str) -> None:
        board = await server.ready(mode=mode, mac=mac)
        for word in ("one", "two"):
            assert await board.turn(word) == (word, [f"you said {word}."])
            if mode == "manual":
                await board.until("idle")
                await board.listen()
        assert (board.lost, board.left_at_stop) == (0, [0, 0])
        await board.hang_up()

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, mode in enumerate(("auto", "realtime", "manual")):
                tasks.create_task(turns(server, f"00:00:00:00:00:0{number}", mode))

    against(act)


def test_texts_are_sent_in_the_order_that_a_board_needs() -> None:
    async def act(server: Server) -> None:
        board = await server.ready(features={"partial": True, "timing": True})
        await board.until("listening")
        board.say("one")
        seen: list[tuple[str, str]] = []
        times: dict[str, float] = {}
        message: dict[str, Any] = {}
        while ("tts", "stop") not in seen:
            message = await board.text_of("stt", "tts", "llm")
            is_partial = message.get("partial", False)
            state = message.get("state", message.get("emotion", str(is_partial)))
            if (message["type"], state) not in seen:
                seen.append((message["type"], state))
            times[state] = message["at"]
        await board.hang_up()
        ordered = [one for one in seen if one != ("stt", "True")]
        assert ordered == [
            ("stt", "False"),
            ("tts", "start"),
            ("llm", "happy"),
            ("tts", "sentence_start"),
            ("tts", "stop"),
        ]
        assert board.first_sound_at[0] - times["start"] >= 0.0999
        assert times["stop"] - board.first_sound_at[0] >= 0.3999
        assert message["timing"]["response_latency_ms"] > 0

    against(act)


def test_clauses_are_shown_when_they_are_played() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        board.say("one")
        await board.text("tts", state="start")
        first = await board.text("tts", state="sentence_start")
        second = await board.text("tts", state="sentence_start")
        assert [first["text"], second["text"]] == ["First clause of all here.", "The second one."]
        assert 0.6 <= second["at"] - first["at"] <= 1.1
        await board.until("listening")
        assert board.lost == 0
        await board.hang_up()

    against(act, Scene(llm=FixedLlm(), tts=SineTts(1000)))


def test_a_long_answer_is_paced_and_can_be_aborted() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        board.say("one")
        await board.text("tts", state="start")
        await until(board, 20)
        assert board.queued_most <= 6
        await board.tell({"type": "abort", "reason": "wake_word_detected"})
        await board.listen()
        stopped = await board.text("tts", state="stop")
        count = len(board.played)
        assert board.lost <= 6  # on their way while it turned to listening
        assert stopped["at"] > 0
        board.say("two")
        await board.text("tts", state="sentence_start", text="you said two.")
        assert count < 40
        await board.hang_up()
        assert server.scene.llm.asked[-1][-1].text == "two"

    against(act, Scene(tts=SineTts(8000)))


def test_an_answer_can_be_stopped_from_here() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        (device_id,) = server.scene.presence.ids()
        board.say("one")
        await board.text("tts", state="start")
        await until(board, 20)
        live: object = server.scene.presence.find(device_id)
        assert isinstance(live, StoppableDevice)
        await live.stop()
        await board.text("tts", state="stop")
        assert len(board.played) < 40
        await board.hang_up()
        await live.stop()  # it has gone: nothing happens

    against(act, Scene(tts=SineTts(8000)))


def test_a_barge_in_interrupts_in_realtime_mode() -> None:
    async def act(server: Server) -> None:
        board = await server.ready(mode="realtime")
        board.say("one")
        await board.text("tts", state="start")
        await until(board, 10)
        board.say("two", "three")
        await board.text("tts", state="stop")
        stt = await board.text("stt")
        assert stt["text"] == "two three"
        await board.text("tts", state="sentence_start")
        await board.hang_up()

    against(act, Scene(tts=SineTts(8000)))


def test_server_echo_cancellation_keeps_a_board_from_interrupting_itself() -> None:
    async def act(server: Server) -> None:
        board = await server.ready(mode="realtime", features={"aec": True})
        board.say("one")
        await board.text("tts", state="sentence_start")
        board.say("two")  # what its microphone has of the answer
        await board.text("tts", state="stop")
        assert len(board.played) * 60 >= 3000
        await board.until("listening")
        await asyncio.sleep(0.8)  # the echo has ended
        board.say("three")
        assert (await board.text("stt"))["text"] == "three"
        await board.hang_up()

    against(act, Scene(tts=SineTts(3000)))


def test_audio_of_a_wake_word_may_come_before_listen() -> None:
    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        await board.open(listens=False)
        await board.wake()
        await board.listen()
        assert await board.turn("one") == ("one", ["you said one."])
        await board.hang_up()
        assert server.scene.metrics.counts["earshot_xiaozhi_bad_input:text"] == 1

    against(act)


def test_a_user_who_continues_during_processing_is_heard_to_the_end() -> None:
    """`tts start` would close the microphone in the middle."""

    async def act(server: Server) -> None:
        board = await server.ready()
        board.say("one")
        await thinking(server, board)
        board.say("two", "three")
        assert (await board.text("stt"))["text"] == "one"
        assert (await board.text_of("stt", "tts"))["type"] == "stt"  # and not yet `tts start`
        await board.text("tts", state="start")
        await board.text("tts", state="stop")
        await board.hang_up()

    against(act, Scene(asr=ToneAsr(0.9, languages=("de", "en"))))


def test_a_second_press_of_the_button_is_answered() -> None:
    async def act(server: Server) -> None:
        board = await server.ready(mode="manual")
        board.say("one")
        await board.release()
        await asyncio.sleep(0.1)  # its words are not known yet
        await board.listen()
        assert await board.turn("two") == ("one", ["you said two."])
        await board.hang_up()

    against(act, Scene(asr=ToneAsr(0.6, languages=("de", "en"))))


def test_history_survives_a_reconnect() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.turn("one")
        await board.hang_up()
        await server.left()
        await board.open()
        await board.turn("two")
        await board.hang_up()
        room, *said = [message.text.strip() for message in server.scene.llm.asked[-1]]
        assert "Kitchen" in room
        assert said == ["one", "you said one.", "two"]

    against(act)


def test_a_person_is_heard_with_a_volume_of_their_own_and_a_guest_with_the_devices() -> None:
    voices = ScriptedVoices()

    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        device = server.scene.directory.known[board.mac]
        server.scene.directory.change(board.mac, profile=type(device.profile)(volume=30))
        await board.open()
        for match in (ANNA, ANNA, None, BEN):
            voices.match = match
            await board.turn("one")
        await board.hang_up()
        assert [arguments["volume"] for _, arguments in board.calls] == [30, 70, 30]

    against(act, Scene(speakers=voices))


def test_each_device_has_its_own_profile_and_area() -> None:
    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        device = server.scene.directory.known[board.mac]
        profile = type(device.profile)(language="de", volume=30)
        server.scene.directory.change(board.mac, profile=profile)
        await board.open()
        await board.turn("one")
        assert server.scene.llm.languages_asked == ["de"]
        assert board.calls == [("self.audio_speaker.set_volume", {"volume": 30})]
        conversation = server.scene.conversations.get(device.id)
        assert (conversation.place.area, conversation.place.device_id) == ("Kitchen", device.id)
        await board.hang_up()

    against(act)


def test_presence_shows_the_state_of_a_board_and_reaches_it() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        (device_id,) = server.scene.presence.ids()
        live = server.scene.presence.find(device_id)
        assert live is not None
        assert await live.notify(DeviceNotification(text="The washing is done."))
        assert not await live.notify(DeviceNotification(text="", audio_url="http://x/a.wav"))
        said = await board.text("tts", state="sentence_start")
        assert said["text"] == "The washing is done."
        assert live.activity == "speaking"
        await board.until("listening")
        await board.turn("one")
        assert live.timing
        assert await live.restart()
        assert (await board.text("system"))["command"] == "reboot"
        assert not await live.update("2.5.0")
        await live.close()
        await board.closed.wait()
        assert board.close_code == 1008
        assert not await live.notify(DeviceNotification(text="Nobody hears this."))
        assert not await live.restart()
        await board.hang_up()

    against(act)


def test_a_silent_user_gets_no_answer() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.closed.wait()
        assert board.close_code == 1000
        await board.hang_up()

    against(act, Scene().with_dialogue(max_silence_s=0.5))


def test_endless_noise_is_cut_off() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        board.say(*["one", "two"] * 10)
        stt = await board.text("stt")
        assert 3 <= len(stt["text"].split()) <= 10
        await board.hang_up()

    against(act, Scene().with_dialogue(max_turn_s=2.0))


def test_tools_of_a_board_are_offered_in_its_conversations() -> None:
    async def act(server: Server) -> None:
        scene = server.scene
        board = await server.ready()
        device_id = scene.directory.known[board.mac].id
        here = ToolContext("c", "en", DeviceLocation("Kitchen", device_id))
        await board.turn("one")  # it has told its tools meanwhile
        specs = scene.tools.tools(here)
        assert scene.tools.tools(here) is specs  # nothing has changed
        assert [spec.name for spec in specs] == [
            "self_audio_speaker_set_volume",
            "self_get_device_status",
        ]  # and no camera: nobody looks
        assert scene.tools.tools(ToolContext("c", "en")) == ()
        outcome = await scene.tools.call("self_audio_speaker_set_volume", {"volume": 30}, here)
        assert (outcome.data, outcome.error) == ({"result": "true"}, None)
        assert board.calls == [("self.audio_speaker.set_volume", {"volume": 30})]
        outcome = await scene.tools.call("self_camera_take_photo", {}, here)
        assert outcome.error == "no_such_tool"
        live = scene.presence.find(device_id)
        assert live is not None
        await board.hang_up()
        await server.left()
        assert scene.tools.tools(here) == ()
        with pytest.raises(DeviceUnavailable):
            await scene.tools.call("self_get_device_status", {}, here)

    against(act)


def test_a_typed_sentence_is_answered_by_voice() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.tell({"type": "listen", "state": "detect", "text": "what time is it"})
        assert (await board.text("stt"))["text"] == "what time is it"
        await board.text("tts", state="start")
        assert (await board.text("tts", state="sentence_start"))["text"] == (
            "you said what time is it."
        )
        await board.text("tts", state="stop")
        assert await board.turn("one") == ("one", ["you said one."])
        await board.hang_up()

    against(act)
