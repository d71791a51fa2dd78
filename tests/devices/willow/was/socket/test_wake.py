"""Several devices hear the same wake word: over real sockets, one of each room answers."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import pytest

from devices.fleet.arbitration import WakeLevel
from devices.fleet.directory import DeviceProfile
from devices.fleet.wake_arbiter import WakeArbiter
from devices.fleet.wake_claims import WakeClaim, WakeClaims
from tests.devices.willow.was.servers import SPEECH, Scene, Server, against, mac_of
from tests.devices.willow.was.simulated_device import SimulatedWillow, Turn
from tests.pipeline.fakes import LoopClock

pytestmark = pytest.mark.live


async def all_of(*work: object) -> list[Turn]:
    return list(await asyncio.gather(*work))  # type: ignore[call-overload]


def decodes(server: Server) -> int:
    return len(server.scene.inference.asr.options)


def test_the_nearer_of_two_devices_answers_and_the_other_is_not_transcribed() -> None:
    async def act(server: Server) -> None:
        near, far = await server.device(1), await server.device(2)
        alone = await near.speak(SPEECH, wake_arbiter=False)
        assert alone.ok is True
        one = decodes(server)
        turns = await all_of(near.speak(SPEECH, volume=-10.0), far.speak(SPEECH, volume=-30.0))
        assert [turn.won for turn in turns] == [True, False]
        assert [turn.status for turn in turns] == [200, 200]
        assert (turns[0].ok, turns[1].ok) == (True, None)
        assert decodes(server) == 2 * one
        assert (near.wake_results(), far.wake_results()) == ([True], [False])
        assert (len(near.results()), len(far.results())) == (2, 0)
        assert (await far.speak(SPEECH, wake_arbiter=False)).ok is True

    against(act)


def test_a_late_wake_word_loses_however_loud() -> None:
    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        await first.wake(-40.0)
        await first.until(first.wake_results)
        turn = await second.speak(SPEECH, volume=0.0)
        assert (turn.won, turn.heard, decodes(server)) == (False, {}, 0)
        assert first.wake_results() == [True]

    against(act)


def test_speech_of_a_device_that_lost_late_is_not_executed() -> None:
    """A bad Wi-Fi resent its wake word, which arrives after its POST began."""

    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        said, may_go_on = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield SPEECH[: len(SPEECH) // 2]
            said.set()
            await may_go_on.wait()
            yield SPEECH[len(SPEECH) // 2 :]

        assert second.config is not None
        assert second._client is not None
        posted = asyncio.ensure_future(second._client.post(second.config["wis_url"], data=body()))
        await said.wait()
        live = server.presence.find("dev_1")
        await server.until(lambda: live is not None and live.activity == "listening")
        await first.wake(-40.0)
        await first.until(first.wake_results)
        await second.wake(-10.0)
        await second.until(second.wake_results)
        may_go_on.set()
        async with await posted as response:
            heard = await response.json()
        assert (first.wake_results(), second.wake_results()) == ([True], [False])
        assert heard["text"] == ""
        await second.send({"cmd": "endpoint", "data": heard})
        assert (await first.speak(SPEECH, wake_arbiter=False)).ok is True
        assert (second.results(), len(server.scene.inference.llm.asked)) == ([], 1)

    against(act)


def test_a_disconnected_device_is_not_awaited() -> None:
    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        await first.wake(-10.0)
        await server.until(lambda: server.door.wake_words._latest)
        await first.cut()
        await server.until(lambda: len(server.door.connected_devices.all()) == 1)
        assert (await second.speak(SPEECH, volume=-40.0)).won is True

    against(act)


@pytest.mark.parametrize("how", ["before its speech", "in its speech"])
def test_after_the_winner_leaves_the_next_wake_word_is_answered(how: str) -> None:
    """The losing device has stopped listening, but it is not late for the next wake word."""

    async def act(server: Server) -> None:
        near, far = await server.device(1), await server.device(2)
        if how == "before its speech":
            await all_of(near.wake(-10.0), far.wake(-30.0))
            await far.until(far.wake_results)
            await near.cut()
        else:
            await far.wake(-30.0)
            await near.break_off(SPEECH)
        await server.until(lambda: len(server.door.connected_devices.all()) == 1)
        await server.until(lambda: not server.wake_arbiter._arbitration._contests)
        assert far.wake_results() == [False]
        assert (await far.speak(SPEECH, volume=-30.0)).ok is True
        assert far.wake_results() == [False, True]

    against(act)


def test_a_device_without_a_wake_volume_takes_part() -> None:
    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        turns = await all_of(first.speak(SPEECH, volume=None), second.speak(SPEECH, volume=-60.0))
        assert [turn.won for turn in turns] == [False, True]

    against(act)


def test_adjacent_rooms_can_be_one_group() -> None:
    async def act(server: Server) -> None:
        kitchen = await server.device(1, room="Kitchen")
        hall = await server.device(2, room="hall")
        attic = await server.device(3, room="Attic")
        turns = await all_of(*(one.speak(SPEECH) for one in (kitchen, hall, attic)))
        assert sorted(turn.won is True for turn in turns[:2]) == [False, True]
        assert turns[2].won is True
        server.known.change(mac_of(hall), area="Cellar")
        devices = server.door.connected_devices
        await server.until(lambda: devices.find("dev_1").device.area == "Cellar")  # type: ignore[union-attr]
        turns = await all_of(kitchen.speak(SPEECH), hall.speak(SPEECH))
        assert [turn.won for turn in turns] == [True, True]

    against(act, Scene(groups=(("kitchen", "Hall"),)))


def test_a_device_with_another_wake_word_is_not_awaited() -> None:
    async def act(server: Server) -> None:
        one, other = await server.device(1), await server.device(2)
        profile = DeviceProfile(wake_word="Hi ESP")
        server.known.change(mac_of(other), profile=profile)
        await other.until(lambda: other.config and other.config["wake_word"] == "hiesp")
        await one.wake()
        await one.until(one.wake_results)
        await other.wake()
        await other.until(other.wake_results)
        assert (one.wake_results(), other.wake_results()) == ([True], [True])

    against(act)


def test_without_multiwake_every_device_is_answered() -> None:
    async def act(server: Server) -> None:
        await server.door.store.save_config({"multiwake": False})
        devices = [await server.device(number) for number in (1, 2)]
        turns = await all_of(*(one.speak(SPEECH, wake_arbiter=False) for one in devices))
        assert [turn.ok for turn in turns] == [True, True]

    against(act)


def _is_told(device: SimulatedWillow, times: int) -> bool:
    return len(device.wake_results()) == times


async def _ten(server: Server, lottery: random.Random, turns: int) -> None:
    rooms = {number: f"room {number % 2}" for number in range(1, 11)}
    devices = {number: await server.device(number, room=room) for number, room in rooms.items()}

    async def take_part(number: int, device: SimulatedWillow, wait_s: float) -> Turn:
        await asyncio.sleep(wait_s)
        return await device.speak(SPEECH, volume=lottery.choice((None, lottery.uniform(-60, 0))))

    for turn in range(turns):
        order = lottery.sample(sorted(devices), len(devices))
        most_s = lottery.choice((0.0, 0.05, 0.15, 0.35))
        waits = {number: most_s * lottery.random() for number in order}
        tasks = (take_part(number, devices[number], waits[number]) for number in order)
        told = dict(zip(order, await all_of(*tasks), strict=True))
        # A wake word that is told after the POST was answered is still on its way.
        for device in devices.values():
            await device.until(partial(_is_told, device, turn + 1))
        won = Counter(rooms[number] for number in devices if devices[number].wake_results()[-1])
        answered = Counter(rooms[number] for number, one in told.items() if one.ok)
        assert won == answered == Counter({"room 0": 1, "room 1": 1})


def test_ten_devices_in_two_rooms_answer_once_each_room() -> None:
    against(lambda server: _ten(server, random.Random("ten willows"), 4))


@pytest.mark.real
def test_ten_devices_answer_a_hundred_wake_words_once_each_room() -> None:
    lottery = random.Random("a hundred wake words")
    against(lambda server: _ten(server, lottery, 100), deadline_s=300)


@pytest.mark.parametrize("granted", [True, False])
def test_the_winner_asks_where_other_servers_may_answer(granted: bool) -> None:
    claims = WakeClaims()

    async def act(server: Server) -> None:
        asked: list[WakeClaim] = []

        async def answer(claim: WakeClaim) -> bool:
            asked.append(claim)
            return granted

        claims.ask = answer
        near, far = await server.device(1), await server.device(2)
        before = decodes(server)
        turns = await all_of(near.speak(SPEECH, volume=-10.0), far.speak(SPEECH, volume=-30.0))
        assert [turn.won for turn in turns] == [granted, False]
        assert (decodes(server) > before) is granted
        (claim,) = asked
        assert claim.level == WakeLevel(-10.0)
        assert claims.rooms() == {claim.room}

    against(act, Scene(wake_arbiter=WakeArbiter(LoopClock(), claims=claims)))
