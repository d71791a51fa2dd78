"""Recognition of the speaker in whole sessions: the client, the tools and the model learn the name,
and no answer waits for it. Virtual time."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.conversation.events import (
    OutputTextDelta,
    ResponseDone,
    SpeakerRecognised,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.conversation.speakers import HeardVoice, SpeakerMatch
from core.ports import DeviceLocation, ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from pipeline.tools.calls.results import PRIVATE_TO
from pipeline.tools.guards import Guards, GuardSettings
from pipeline.user_turn.speaker import MAX_HEARD_MS
from tests.pipeline.fakes import Adder, Kept, ManualClock, World, names, speak
from tests.pipeline.scenes import ANSWER_TIME_MS, ONE, SILENCE, counted, of, one_turn, run_session
from tests.pipeline.scripted import ToolLlm, Watched
from tests.pipeline.scripted_voices import ANNA, BEN, ScriptedVoices

pytestmark = pytest.mark.many

TURN_MS = ((SILENCE, 200), (4000, 400), (SILENCE, ANSWER_TIME_MS))


def _names_in_prompts(world: World) -> list[str]:
    return [messages[-1].speaker for messages in world.llm.asked]


def test_the_speaker_is_known_before_the_transcript_and_stands_in_the_prompt() -> None:
    voices = ScriptedVoices()
    world = World(speakers=voices)
    events = run_session(world, one_turn)
    (recognised,), (timeline,) = of(SpeakerRecognised, events), of(TurnTimeline, events)
    assert (recognised.item_id, recognised.speaker) == (timeline.item_id, ANNA)
    assert timeline.speaker == ANNA
    assert _names_in_prompts(world) == ["Anna"]  # and the draft of the pause was used
    assert counted(world, "used") == 1
    assert voices.held == [True, False]


def test_nothing_is_computed_while_nobody_has_taught_a_voice() -> None:
    voices = ScriptedVoices(people=0)
    world = World(speakers=voices)
    told = names(run_session(world, one_turn))
    assert told == names(run_session(World(), one_turn))
    assert voices.heard == []
    assert _names_in_prompts(world) == [""]


def test_the_model_reads_no_name_where_one_person_only_is_known() -> None:
    world = World(speakers=ScriptedVoices(people=1))
    events = run_session(world, one_turn)
    assert of(SpeakerRecognised, events)[0].speaker == ANNA
    assert _names_in_prompts(world) == [""]


def test_an_unknown_voice_is_a_guest_and_too_little_speech_is_nobody() -> None:
    guest = ScriptedVoices(None)
    world = World(speakers=guest)
    events = run_session(world, one_turn)
    assert of(SpeakerRecognised, events)[0].speaker is None
    assert _names_in_prompts(world) == [""]
    guest.vector = b""
    assert of(SpeakerRecognised, run_session(World(speakers=guest), one_turn)) == []


@pytest.mark.parametrize("delay_s", [0.02, 0.5, 5.0])
def test_no_answer_waits_for_the_voice(delay_s: float) -> None:
    world = World(speakers=ScriptedVoices(delay_s=delay_s))
    (with_voice,) = of(TurnTimeline, run_session(world, one_turn))
    (without,) = of(TurnTimeline, run_session(World(), one_turn))
    assert with_voice.marks == without.marks
    assert _names_in_prompts(world) == (["Anna"] if delay_s < 0.05 else [""])
    assert counted(world, "used") == 1


def test_a_model_that_fails_costs_only_the_name() -> None:
    voices = ScriptedVoices()
    voices.is_broken = True
    events = run_session(World(speakers=voices), one_turn)
    assert of(SpeakerRecognised, events) == []
    assert of(ResponseDone, events)[0].status == "completed"


def test_an_utterance_of_a_known_person_is_offered_to_their_voice() -> None:
    voices = ScriptedVoices()
    voices.is_broken_at_end = True  # which costs nothing
    events = run_session(World(speakers=voices), one_turn)
    (recognised,), ((who, seconds),) = of(SpeakerRecognised, events), voices.followed
    assert (who, recognised.speaker) == (ANNA.id, ANNA)
    assert 1.0 < seconds <= voices.heard[0]
    assert of(ResponseDone, events)[0].status == "completed"
    guest = ScriptedVoices(None)
    run_session(World(speakers=guest), one_turn)
    assert guest.followed == []


def test_after_a_pause_all_of_the_speech_is_heard_again_but_no_more_than_its_end() -> None:
    voices = ScriptedVoices(delay_s=1.0)

    async def scenario(session: Session) -> None:
        pause = ((ONE, 1400), (SILENCE, 160))
        await speak(session, (SILENCE, 200), *pause, *pause, *pause, (SILENCE, 3000))

    events = run_session(World(speakers=voices), scenario)
    assert len(of(SpeakerRecognised, events)) == len(of(TranscriptionCompleted, events)) == 1
    first, second, third = voices.heard
    assert 1.4 <= first < second < third == MAX_HEARD_MS / 1000


def test_push_to_talk_is_heard_when_the_client_commits() -> None:
    voices = ScriptedVoices()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600))
        session.commit_input()
        await speak(session, (SILENCE, 1000))

    settings = SessionSettings(turn_detection=None)
    events = run_session(World(speakers=voices), scenario, settings)
    assert of(SpeakerRecognised, events)[0].speaker == ANNA


def test_a_tool_learns_who_asks() -> None:
    asked_by: list[SpeakerMatch | None] = []

    class Watching(Adder):
        async def call(
            self, name: str, arguments: Mapping[str, Any], context: ToolContext
        ) -> ToolOutcome:
            asked_by.append(context.speaker)
            return await super().call(name, arguments, context)

        def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
            return [replace(spec, is_read_only=False) for spec in super().tools(context)]

    world = World(speakers=ScriptedVoices(), providers=[Watching()])
    run_session(world, lambda session: speak(session, *TURN_MS))
    assert asked_by == [ANNA]


def _settings_of(person_id: str, settings: SessionSettings) -> SessionSettings:
    instructions = {"spk_1": "Call me Captain.", "spk_2": "Speak slowly."}[person_id]
    return replace(settings, instructions=instructions, speed=1.2)


def _instructions(world: World) -> list[str]:
    return [messages[0].text.splitlines()[0] for messages in world.llm.asked]


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        # The second person's settings hold from the first utterance on, and a guest has none.
        ((ANNA, BEN, None), ("Call me Captain.", "Speak slowly.", "The session's.")),
        # Too little speech is no voice: the one who spoke last goes on.
        ((ANNA, "too little", "too little"), ("Call me Captain.",) * 3),
    ],
)
def test_each_person_has_settings_of_their_own(
    heard: Sequence[SpeakerMatch | str | None], expected: Sequence[str]
) -> None:
    voices = ScriptedVoices()
    world = World(speakers=voices, apply_profile=_settings_of)

    async def scenario(session: Session) -> None:
        for voice in heard:
            voices.match = voice if isinstance(voice, SpeakerMatch) else None
            voices.vector = b"" if isinstance(voice, str) else b"\0" * 4
            await one_turn(session)

    run_session(world, scenario, SessionSettings(instructions="The session's."))
    assert _instructions(world) == list(expected)
    assert counted(world, "used") == 3  # no draft was made in vain


def test_a_person_who_is_known_late_has_the_settings_from_the_next_turn_on() -> None:
    world = World(speakers=ScriptedVoices(delay_s=0.5), apply_profile=_settings_of)

    async def scenario(session: Session) -> None:
        await one_turn(session)
        await one_turn(session)

    run_session(world, scenario, SessionSettings(instructions="The session's."))
    assert _instructions(world) == ["The session's.", "Call me Captain."]


CALLER = DeviceLocation(caller="Anna", caller_id="spk_1")


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        # A voice that nobody has is taken for the caller's, a known one is not.
        ((None, BEN, None), ("Call me Captain.", "Speak slowly.", "Call me Captain.")),
        (("too little",), ("Call me Captain.",)),
    ],
)
def test_a_known_caller_has_settings_from_the_first_word_on(
    heard: Sequence[SpeakerMatch | str | None], expected: Sequence[str]
) -> None:
    voices = ScriptedVoices()
    world = World(speakers=voices, apply_profile=_settings_of)

    async def scenario(session: Session) -> None:
        for voice in heard:
            voices.match = voice if isinstance(voice, SpeakerMatch) else None
            voices.vector = b"" if isinstance(voice, str) else b"\0" * 4
            await one_turn(session)

    events = run_session(
        world, scenario, SessionSettings(instructions="The session's."), place=CALLER
    )
    assert _instructions(world) == list(expected)
    assert all("from the number of Anna" in messages[0].text for messages in world.llm.asked)
    # The number proves nothing: tools and clients get a person only by the voice.
    assert {one.speaker for one in of(SpeakerRecognised, events)} <= {None, BEN}


def test_the_number_of_a_caller_opens_no_guard() -> None:
    for match in (None, BEN):
        world, tool = _guarded(ScriptedVoices(match))
        events = run_session(world, one_turn, place=CALLER)
        assert tool.ran == []
        answer = "".join(event.delta for event in of(OutputTextDelta, events))
        assert "only for certain people" in answer
    world, tool = _guarded(ScriptedVoices(ANNA))
    run_session(world, one_turn, place=CALLER)
    assert tool.ran  # the voice does


def _guarded(voices: ScriptedVoices, code: str = "") -> tuple[World, Watched]:
    """Returns a world with a tool that only Anna may use, and the tool."""
    tool = Watched(is_read_only=True)
    guards = Guards(
        {"sum": GuardSettings(locks=("anna",), tools=("add",), code=code)}, ManualClock()
    )
    return World(speakers=voices, providers=[tool], llm=ToolLlm(), guards=guards), tool


@pytest.mark.parametrize("match", [ANNA, BEN, None])
def test_a_guarded_tool_runs_only_for_the_confirmed_person(match: SpeakerMatch | None) -> None:
    voices = ScriptedVoices(match, delay_s=0.3)  # confirmed after the answer was begun
    world, tool = _guarded(voices)
    events = run_session(world, one_turn)
    assert bool(tool.ran) == (match is ANNA)
    answer = "".join(event.delta for event in of(OutputTextDelta, events))
    assert ("only for certain people" in answer) == (match is not ANNA)
    (heard_s,) = voices.confirmed
    assert 1.0 <= heard_s < 1.4  # all of the utterance, without the silence after it


def test_a_tool_may_learn_the_voice_of_a_turn_also_where_nobody_is_known() -> None:
    heard: list[HeardVoice | None] = []

    class Learning(Watched):
        async def call(
            self, name: str, arguments: Mapping[str, Any], context: ToolContext
        ) -> ToolOutcome:
            heard.append(await context.hear_voice())
            return await super().call(name, arguments, context)

    voices = ScriptedVoices(people=0)
    tool = Learning(is_read_only=False)
    run_session(World(speakers=voices, providers=[tool], llm=ToolLlm()), one_turn)
    (voice,) = heard
    assert voice is not None
    assert (voice.model, voice.speech_ms) == ("scripted", 1000)


class OwnThings(Adder):
    """A tool that answers with what belongs to the person who asks."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        assert context.speaker is not None
        person = context.speaker
        return ToolOutcome({"items": [f"things of {person.name}"], PRIVATE_TO: person.id})


class ListeningToolLlm(ToolLlm):
    """A model that calls the tool first, and keeps its prompts."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        self.asked.append(list(messages))
        async for step in super().reply(messages, tools, language=language, options=options):
            yield step


def test_another_person_of_the_conversation_does_not_get_what_is_private() -> None:
    voices = ScriptedVoices(ANNA)
    world = World(speakers=voices, providers=[OwnThings()], llm=ListeningToolLlm())
    seen: list[str] = []

    async def scenario(session: Session) -> None:
        for voices.match in (ANNA, ANNA, BEN):
            world.llm.asked.clear()
            await speak(session, *TURN_MS)
            seen.append(str(world.llm.asked[0]))

    run_session(world, scenario)
    assert ["things of Anna" in prompt for prompt in seen] == [False, True, False]
    assert "Ben" in seen[-1]


def test_a_model_that_fails_opens_no_guard() -> None:
    voices = ScriptedVoices()
    voices.is_broken = True
    world, tool = _guarded(voices)
    run_session(world, one_turn)
    assert tool.ran == []


def test_a_code_reaches_the_guard_and_nobody_else() -> None:
    kept = Kept()
    world, tool = _guarded(ScriptedVoices(), code="1231")
    services = replace(world.services(), trace=kept, traces_words=True)
    world.services = lambda services=services: services  # type: ignore[method-assign, misc]

    async def scenario(session: Session) -> None:
        digits = ((ONE, 300), (2000, 300), (3000, 300), (ONE, 300))
        await speak(session, (SILENCE, 200), *digits, (SILENCE, ANSWER_TIME_MS))

    events = run_session(world, scenario)
    (completed,) = of(TranscriptionCompleted, events)
    assert completed.transcript == "(code)"
    assert len(tool.ran) == 1
    assert [messages[-1].text for messages in world.llm.asked if messages[-1].role == "user"] == []
    # Only what the client is shown while a person speaks has it, before it is known to be a code.
    with_code = [record for record in kept.records if "one two three one" in str(record)]
    assert {record["event"] for record in with_code} <= {"HypothesisChanged"}


def test_only_a_trace_with_words_names_the_speaker() -> None:
    for has_words in (True, False):
        kept, world = Kept(), World(speakers=ScriptedVoices())
        services = replace(world.services(), trace=kept, traces_words=has_words)
        world.services = lambda services=services: services  # type: ignore[method-assign, misc]
        run_session(world, one_turn)
        (record,) = [record for record in kept.records if record["event"] == "SpeakerRecognised"]
        named = {"id": "spk_1", "name": "Anna", "score": 0.9}
        assert record.get("speaker") == (named if has_words else None)
        assert ("Anna" in str(kept.records)) == has_words


def test_a_session_hears_silence_as_nobody() -> None:
    voices = ScriptedVoices()
    run_session(World(speakers=voices), lambda session: speak(session, (SILENCE, 1000)))
    assert voices.heard == []
