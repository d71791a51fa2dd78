"""Timers in virtual time: they ring by voice in their conversation, and their number is limited."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from core.conversation.speakers import SpeakerMatch
from core.ports import ToolContext, ToolOutcome
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import Timers, TimerTools
from pipeline.tools.skills.timers import MAX_TIMERS_PER_CONVERSATION, RING_S
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock
from tests.pipeline.tools.skills.listener import Listener


@dataclass
class Kitchen:
    """A home with running timers and a listener."""

    home: Home
    timers: Timers
    listener: Listener
    language: str = "en"

    speaker: SpeakerMatch | None = None
    "Person who speaks; None: a guest."

    async def do(self, tool: str, conversation: str = "conv_1", /, **arguments: Any) -> ToolOutcome:
        context = ToolContext(conversation, self.language, speaker=self.speaker)
        return await TimerTools(self.timers).call(tool, arguments, context)

    def shown(self) -> list[tuple[str, float, str]]:
        return [(t.name, t.remaining_s, t.state) for t in self.home.snapshot().timers]


def in_kitchen(
    scene: Callable[[Kitchen], Awaitable[None]],
    listener: Listener | None = None,
    language: str = "en",
) -> tuple[Listener, float]:
    """Plays a scene while timers run; returns the listener and the virtual seconds that it took."""
    heard = listener or Listener()

    async def main() -> None:
        home = Home(default_home())
        timers = Timers(home, LoopClock(), heard)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(timers.run())
            await scene(Kitchen(home, timers, heard, language))
            running.cancel()

    return heard, run_virtual(main())


def test_a_timer_rings_by_voice_at_its_end() -> None:
    async def scene(kitchen: Kitchen) -> None:
        outcome = await kitchen.do("HassStartTimer", seconds=10)
        assert outcome.data["timer"]["duration_s"] == 10
        await asyncio.sleep(9.9)
        assert kitchen.listener.announcements == []
        assert kitchen.shown() == [("", 0.1, "running")]
        await asyncio.sleep(0.2)
        assert kitchen.shown() == []

    listener, _ = in_kitchen(scene)
    assert listener.announcements == [(10.0, "conv_1", "Your timer is done.")]


@pytest.mark.parametrize(
    ("language", "name", "text"),
    [
        ("en", "pasta", "Your pasta timer is done."),
        ("de", "", "Dein Timer ist abgelaufen."),
        ("fr", "pâtes", "Le minuteur pâtes est terminé."),
        ("es", "", "El temporizador ha terminado."),
        ("xx", "", "Your timer is done."),
    ],
)
def test_a_timer_rings_in_the_language_of_its_request(language: str, name: str, text: str) -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", minutes=1, name=name)
        await asyncio.sleep(61)

    listener, _ = in_kitchen(scene, language=language)
    assert listener.announcements == [(60.0, "conv_1", text)]


def test_several_timers_ring_in_their_conversations_and_in_order() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", "conv_a", seconds=30, name="tea")
        await kitchen.do("HassStartTimer", "conv_b", seconds=10, name="eggs")
        await asyncio.sleep(5)
        await kitchen.do("HassStartTimer", "conv_a", seconds=10)
        await asyncio.sleep(60)

    listener, _ = in_kitchen(scene)
    assert listener.announcements == [
        (10.0, "conv_b", "Your eggs timer is done."),
        (15.0, "conv_a", "Your timer is done."),
        (30.0, "conv_a", "Your tea timer is done."),
    ]


ANNA, BEN = SpeakerMatch("spk_a", "Anna", 0.9), SpeakerMatch("spk_b", "Ben", 0.9)


def test_the_timer_is_that_of_the_person_who_speaks() -> None:
    async def scene(kitchen: Kitchen) -> None:
        for speaker, minutes in ((ANNA, 5), (BEN, 10), (None, 15)):
            kitchen.speaker = speaker
            await kitchen.do("HassStartTimer", minutes=minutes)
        kitchen.speaker = None
        assert (await kitchen.do("HassCancelTimer")).error == "multiple_timers_matched"
        kitchen.speaker = BEN
        (left,) = (await kitchen.do("HassTimerStatus")).data["timers"]
        assert left["remaining_s"] == 600
        assert (await kitchen.do("HassTimerStatus", start_minutes=5)).data["timers"] != []
        kitchen.speaker = ANNA
        assert (await kitchen.do("HassCancelTimer", "conv_bedroom")).error is None
        assert (await kitchen.do("HassTimerStatus", "conv_bedroom")).data["timers"] == []
        assert len((await kitchen.do("HassTimerStatus")).data["timers"]) == 2
        assert (await kitchen.do("HassCancelAllTimers")).data["canceled"] == 2

    in_kitchen(scene)


@pytest.mark.parametrize(
    ("language", "name", "text"),
    [
        ("en", "tea", "Anna, your tea timer is done."),
        ("de", "", "Anna, dein Timer ist abgelaufen."),
    ],
)
def test_a_timer_names_the_person_who_started_it(language: str, name: str, text: str) -> None:
    async def scene(kitchen: Kitchen) -> None:
        kitchen.speaker = ANNA
        await kitchen.do("HassStartTimer", seconds=30, name=name)
        await asyncio.sleep(31)

    listener, _ = in_kitchen(scene, language=language)
    assert listener.announcements == [(30.0, "conv_1", text)]


def test_a_timer_rings_until_somebody_listens() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", seconds=10)
        await asyncio.sleep(20)
        assert kitchen.shown() == [("", 0.0, "ringing")]
        await asyncio.sleep(20)
        assert kitchen.shown() == []

    listener, _ = in_kitchen(scene, Listener(comes_at=25))
    assert [text for _, _, text in listener.announcements] == ["Your timer is done."]
    assert 25 <= listener.announcements[0][0] < 28


@pytest.mark.parametrize("listener", [Listener(comes_at=1e9), Listener(fails=True)])
def test_a_timer_without_a_listener_stops_ringing_after_a_minute(listener: Listener) -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", seconds=10)
        await asyncio.sleep(10 + RING_S - 1)
        assert kitchen.shown() == [("", 0.0, "ringing")]
        assert (await kitchen.do("HassIncreaseTimer", minutes=1)).error == "timer_not_found"
        await asyncio.sleep(2)
        assert kitchen.shown() == []

    in_kitchen(scene, listener)
    assert listener.announcements == []


def test_a_ringing_timer_can_be_cancelled() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", seconds=10)
        await asyncio.sleep(20)
        assert (await kitchen.do("HassCancelTimer")).error is None
        assert kitchen.shown() == []
        await asyncio.sleep(40)

    assert in_kitchen(scene, Listener(comes_at=30))[0].announcements == []


def test_a_timer_can_be_extended_shortened_paused_and_queried() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", minutes=10, name="pasta")
        await asyncio.sleep(60)
        await kitchen.do("HassIncreaseTimer", name="Pasta", minutes=5)
        assert kitchen.shown() == [("pasta", 840.0, "running")]
        await kitchen.do("HassDecreaseTimer", minutes=4)
        await kitchen.do("HassPauseTimer")
        await asyncio.sleep(1000)
        assert kitchen.shown() == [("pasta", 600.0, "paused")]
        status = await kitchen.do("HassTimerStatus", name="pasta")
        assert status.data["timers"][0]["remaining_s"] == 600
        assert status.data["timers"][0]["is_paused"]
        await kitchen.do("HassUnpauseTimer", name="pasta")
        await asyncio.sleep(599)
        assert kitchen.listener.announcements == []
        await asyncio.sleep(2)
        assert len(kitchen.listener.announcements) == 1

    in_kitchen(scene)


def test_a_timer_shortened_below_zero_rings_at_once() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", minutes=1)
        await kitchen.do("HassDecreaseTimer", minutes=2)
        await asyncio.sleep(0.1)

    listener, _ = in_kitchen(scene)
    assert [when for when, _, _ in listener.announcements] == [0.0]


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("HassStartTimer", {}, "invalid_arguments"),
        ("HassStartTimer", {"minutes": "ten"}, "invalid_arguments"),
        ("HassStartTimer", {"seconds": 0}, "bad_duration"),
        ("HassStartTimer", {"hours": 25}, "bad_duration"),
        ("HassStartTimer", {"seconds": -5}, "out_of_range"),
        ("HassCancelTimer", {}, "multiple_timers_matched"),
        ("HassCancelTimer", {"name": "soup"}, "timer_not_found"),
        ("HassCancelTimer", {"start_minutes": 7}, "timer_not_found"),
        ("HassTimerStatus", {"name": "soup"}, "timer_not_found"),
        ("HassIncreaseTimer", {"name": "tea"}, "invalid_arguments"),
        ("HassIncreaseTimer", {"name": "tea", "hours": 24}, "bad_duration"),
    ],
)
def test_a_wrong_call_names_its_error_and_changes_nothing(
    tool: str, arguments: dict[str, Any], error: str
) -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", minutes=5, name="tea")
        await kitchen.do("HassStartTimer", minutes=6, name="eggs")
        before = kitchen.shown()
        assert (await kitchen.do(tool, **arguments)).error == error
        assert kitchen.shown() == before

    in_kitchen(scene)


def test_timers_are_found_by_name_or_duration_within_their_conversation() -> None:
    async def scene(kitchen: Kitchen) -> None:
        await kitchen.do("HassStartTimer", minutes=5, name="tea")
        await kitchen.do("HassStartTimer", minutes=6)
        assert (await kitchen.do("HassCancelTimer", start_minutes=6)).error is None
        assert (await kitchen.do("HassCancelTimer", "conv_2", name="tea")).error is not None
        assert (await kitchen.do("HassCancelAllTimers", "conv_2")).data == {"canceled": 0}
        assert (await kitchen.do("HassCancelAllTimers")).data == {"canceled": 1}

    in_kitchen(scene)


def test_the_number_of_timers_per_conversation_is_limited() -> None:
    async def scene(kitchen: Kitchen) -> None:
        for _ in range(MAX_TIMERS_PER_CONVERSATION):
            assert (await kitchen.do("HassStartTimer", minutes=5)).error is None
        assert (await kitchen.do("HassStartTimer", minutes=5)).error == "too_many_timers"
        assert (await kitchen.do("HassStartTimer", "conv_2", minutes=5)).error is None

    in_kitchen(scene)
