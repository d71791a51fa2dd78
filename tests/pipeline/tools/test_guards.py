"""Guards: who may use a tool or a device, what the others hear, and codes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from core.conversation.speakers import SpeakerMatch
from core.ports import SpeakerConfirmation, ToolContext, ToolOutcome
from engines.base import ToolCall
from pipeline.tools.guards import (
    CODE_WINDOW_S,
    MAX_WRONG_CODES,
    NO_GUARDS,
    Guards,
    GuardSettings,
    all_sentences,
)
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import HomeTools
from pipeline.tools.toolbox import Toolbox
from tests.pipeline.fakes import Adder, Counts, ManualClock

ANNA = SpeakerMatch("spk_1", "Anna", 0.9)
DOOR = "lock.hallway_door"
UNLOCK = {"name": DOOR, "domain": "lock"}


def asked_by(
    speaker: SpeakerMatch | None,
    *,
    is_owners: bool = True,
    codes: Sequence[str] = (),
    language: str = "en",
) -> ToolContext:
    async def confirm() -> SpeakerConfirmation:
        return SpeakerConfirmation(speaker, is_owners, frozenset(codes))

    # The name of the turn is never enough: here it says Anna to each of them.
    return ToolContext("conv_1", language, speaker=ANNA, confirm_speaker=confirm)


def guards(clock: ManualClock | None = None, **settings: Any) -> Guards:
    values = {"locks": ("anna", "ben"), "tools": ("add",), **settings}
    return Guards({"door": GuardSettings(**values)}, clock)


def refused(outcome: ToolOutcome | None) -> bool:
    return outcome is not None and outcome.error == "not_allowed"


@pytest.mark.parametrize(
    ("context", "locks", "is_allowed"),
    [
        (asked_by(ANNA), ("anna", "ben"), True),
        (asked_by(ANNA), ("Anna",), True),
        (asked_by(SpeakerMatch("spk_9", "Cleo", 0.99)), ("anna", "ben"), False),
        (asked_by(None), ("anna", "ben"), False),
        (ToolContext("conv_1", "en", speaker=ANNA), ("anna",), False),  # written words
        # The holder of a named key may call a voice Anna. An id belongs to one person alone.
        (asked_by(ANNA, is_owners=False), ("anna",), False),
        (asked_by(ANNA, is_owners=False), ("spk_1",), True),
        (asked_by(SpeakerMatch("spk_9", "spk_1", 0.9)), ("spk_1",), False),
    ],
)
def test_only_the_named_people_may(
    context: ToolContext, locks: Sequence[str], is_allowed: bool
) -> None:
    outcome = asyncio.run(guards(locks=tuple(locks)).refuse_tool(["add"], context))
    assert refused(outcome) != is_allowed


def test_a_tool_without_a_guard_asks_for_no_voice() -> None:
    async def confirm() -> SpeakerConfirmation:
        raise AssertionError

    context = ToolContext("conv_1", "en", confirm_speaker=confirm)
    assert asyncio.run(guards().refuse_tool(["other"], context)) is None
    assert asyncio.run(NO_GUARDS.refuse_devices([DOOR], context)) is None


def test_a_guarded_tool_runs_for_them_and_never_before_the_turn_is_over() -> None:
    toolbox = Toolbox([Adder()], Counts(), guards=guards())
    call = ToolCall("call_1", "add", {"a": 2, "b": 2})
    allowed, other = (
        asyncio.run(toolbox.run([call], context))[0] for context in (asked_by(ANNA), asked_by(None))
    )
    assert json.loads(allowed) == {"sum": 4}
    assert json.loads(other)["error"] == "not_allowed"
    assert not toolbox.may_run_early(call, asked_by(ANNA))
    assert Toolbox([Adder()], Counts()).may_run_early(call, asked_by(ANNA))


def test_the_refusal_is_in_the_language_of_the_session() -> None:
    for language, sentences in all_sentences().items():
        outcome = asyncio.run(guards().refuse_tool(["add"], asked_by(None, language=language)))
        assert outcome is not None
        assert outcome.data["speech"] == sentences.refused
        assert len(sentences.digits) == 10
    unknown = asyncio.run(guards().refuse_tool(["add"], asked_by(None, language="xx")))
    assert unknown is not None
    assert unknown.data["speech"] == all_sentences()["en"].refused


@pytest.mark.parametrize(
    ("name", "arguments", "is_guarded"),
    [
        ("HassTurnOff", UNLOCK, True),
        ("HassTurnOff", {"name": "front door", "domain": "lock"}, True),
        ("HassTurnOff", {"area": "hallway", "domain": "lock"}, True),
        ("HassTurnOff", {"domain": "lock", "everywhere": True}, True),
        ("HassTurnOn", UNLOCK, True),
        ("HassTurnOn", {"name": "kitchen lights"}, False),
        ("HassGetState", UNLOCK, False),
    ],
)
def test_a_guarded_device_stays_as_it_is_however_it_is_named(
    name: str, arguments: dict[str, Any], is_guarded: bool
) -> None:
    home = Home(default_home())
    tools = HomeTools(home, guards(tools=(), devices=(DOOR,)))
    before, revision = home.entities(), home.revision
    outcome = asyncio.run(tools.call(name, arguments, asked_by(None)))
    assert refused(outcome) == is_guarded
    if is_guarded:
        assert (home.entities(), home.revision) == (before, revision)
    assert not refused(asyncio.run(tools.call(name, arguments, asked_by(ANNA))))


def test_a_guest_cannot_undo_what_a_person_did_with_a_guarded_device() -> None:
    home = Home(default_home())
    tools = HomeTools(home, guards(tools=(), devices=(DOOR,)))
    done = asyncio.run(tools.call("HassTurnOff", UNLOCK, asked_by(ANNA)))
    undo = {"changes": [done.data["undo"]]}
    assert refused(asyncio.run(tools.call("HassUndo", undo, asked_by(None))))
    assert home.entity(DOOR).state == "unlocked"
    asyncio.run(tools.call("HassUndo", undo, asked_by(ANNA)))
    assert home.entity(DOOR).state == "locked"


def test_a_code_is_needed_besides_the_voice() -> None:
    guarded = guards(ManualClock(), code="4711")
    for context, speech in (
        (asked_by(ANNA), all_sentences()["en"].code),
        (asked_by(ANNA, codes=["other"]), all_sentences()["en"].code),
        (asked_by(None, codes=["door"]), all_sentences()["en"].refused),
    ):
        outcome = asyncio.run(guarded.refuse_tool(["add"], context))
        assert outcome is not None
        assert outcome.data["speech"] == speech
    assert asyncio.run(guarded.refuse_tool(["add"], asked_by(ANNA, codes=["door"]))) is None


def test_after_too_many_wrong_codes_the_right_one_is_refused_for_a_while() -> None:
    clock = ManualClock()
    guarded, right = guards(clock, code="4711"), asked_by(ANNA, codes=["door"])
    for _ in range(MAX_WRONG_CODES):
        assert asyncio.run(guarded.refuse_tool(["add"], asked_by(ANNA)))
    assert refused(asyncio.run(guarded.refuse_tool(["add"], right)))
    clock.seconds += CODE_WINDOW_S + 1
    assert asyncio.run(guarded.refuse_tool(["add"], right)) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"locks": ["anna"]}, "a guard needs tools or devices"),
        ({"locks": [], "tools": ["add"]}, "length >= 1"),
        ({"locks": ["anna"], "tools": ["add"], "code": "471"}, "matching regex"),
        ({"locks": ["anna"], "tools": ["add"], "guests": True}, "unknown field `guests`"),
    ],
)
def test_a_guard_that_guards_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(settings, GuardSettings)
