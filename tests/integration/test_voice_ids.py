"""A voice's id means the same voice at every door: the one of the engine that it names.

Both engines have a voice `low`. The plain name means that of the first engine.
"""

import asyncio
from typing import Any

import pytest
from wyoming.tts import Synthesize, SynthesizeVoice

from tests.devices.willow.wis import servers as wis
from tests.devices.wyoming import servers as wyoming
from tests.devices.xiaozhi import servers as xiaozhi
from tests.pipeline.fakes import ToneTts, World
from tests.signaling.realtime import servers as realtime
from tests.signaling.realtime.client_events import expect, update
from tests.web.openai.speech import harness as speech

pytestmark = pytest.mark.live

with_each_name = pytest.mark.parametrize(
    ("name", "is_spare"), [("spare/low", True), ("spare:low", True), ("low", False)]
)


def check(tts: ToneTts, spare: ToneTts, is_spare: bool) -> None:
    """Checks which engine spoke, and with which voice."""
    asked = (spare, tts) if is_spare else (tts, spare)
    assert asked[1].voices_asked == []
    assert set(asked[0].voices_asked) == {"low"}


@with_each_name
def test_speech(name: str, is_spare: bool) -> None:
    tts, spare = speech.HeldTts(), speech.HeldTts()

    async def main() -> int:
        async with speech.door(tts, 4, spare=spare) as server:
            answer = await server.post(voice=name)
            await answer.read()
            return answer.status

    assert asyncio.run(main()) == 200
    check(tts, spare, is_spare)


@with_each_name
def test_the_key_of_a_person(name: str, is_spare: bool) -> None:
    tts, spare = speech.HeldTts(), speech.HeldTts()

    async def main() -> None:
        async with speech.door(tts, 4, spare=spare, voice=name) as server:
            await (await server.post(voice="alloy")).read()

    asyncio.run(main())
    check(tts, spare, is_spare)


@with_each_name
def test_realtime(name: str, is_spare: bool) -> None:
    world = World(tts=ToneTts(), spare=ToneTts())

    async def scene(server: realtime.Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            session = await update(ws, audio={"output": {"voice": name}})
            assert session["audio"]["output"]["voice"] == name
            content = [{"type": "input_text", "text": "hello"}]
            item = {"type": "message", "role": "user", "content": content}
            await ws.send_json({"type": "conversation.item.create", "item": item})
            await ws.send_json({"type": "response.create"})
            await expect(ws, "response.done")
        assert world.spare is not None
        check(world.tts, world.spare, is_spare)

    realtime.against(scene, realtime.Setup(world=world))


@with_each_name
@pytest.mark.parametrize("path", ["/api/tts", "/api/chatbot/tts"])
def test_willow(name: str, is_spare: bool, path: str) -> None:
    tts, spare = wis.PickyTts(), wis.PickyTts()

    async def act(server: wis.Server) -> None:
        answer = await server.client.get(path, params={"text": "Hello.", "speaker": name})
        assert answer.status == 200
        await answer.read()

    wis.against(act, wis.Scene(tts=tts, voices={"spare": spare}))
    check(tts, spare, is_spare)


@with_each_name
def test_wyoming(name: str, is_spare: bool) -> None:
    scene = wyoming.Scene(spare=ToneTts())
    wanted = Synthesize(text="Good morning.", voice=SynthesizeVoice(name=name))
    assert wyoming.run(scene, wanted, last="audio-stop")[-1].type == "audio-stop"
    assert scene.spare is not None
    check(scene.tts, scene.spare, is_spare)


@with_each_name
def test_the_profile_of_a_xiaozhi_board(name: str, is_spare: bool) -> None:
    scene = xiaozhi.Scene(spare=xiaozhi.SineTts(300))

    async def act(server: xiaozhi.Server) -> None:
        board = server.board()
        await board.boot()
        profile: Any = type(server.scene.directory.known[board.mac].profile)
        changed = profile(language="en", voice=name)
        server.scene.directory.change(board.mac, profile=changed)
        await board.open()
        await board.turn("one")
        await board.hang_up()

    xiaozhi.against(act, scene)
    assert scene.spare is not None
    check(scene.tts, scene.spare, is_spare)
