"""A display is told each change of a timer once, and none for time that goes by."""

from msgspec.structs import replace

from devices.esphome.timer_changes import timer_changes
from pipeline.tools.home import TimerState

TEA = TimerState("timer_1", "tea", "dev_1", 180.0, 180.0, "running")


def test_the_life_of_a_timer() -> None:
    later = replace(TEA, remaining_s=100.0)
    paused = replace(later, state="paused")
    ringing = replace(TEA, remaining_s=0.0, state="ringing")
    steps: list[tuple[tuple[TimerState, ...], tuple[TimerState, ...]]]
    steps = [((), (TEA,)), ((TEA,), (later,)), ((later,), (paused,)), ((paused,), (TEA,))]
    steps += [((TEA,), (ringing,)), ((ringing,), ()), ((TEA,), ()), ((), (ringing,))]
    told = [
        [one.kind for one in timer_changes({timer.id: timer for timer in before}, now)]
        for before, now in steps
    ]
    assert told == [["started"], [], ["updated"], ["updated"], ["finished"], [], ["cancelled"], []]


def test_time_that_was_added_is_an_update() -> None:
    (change,) = timer_changes({TEA.id: TEA}, [replace(TEA, duration_s=240.0, remaining_s=200.0)])
    assert (change.kind, change.timer.remaining_s) == ("updated", 200.0)
