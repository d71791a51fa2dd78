"""Recognition of the speaker in whole sessions: the client, the tools and the model learn the name,
and no answer waits for it. Virtual time."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EngineCrashed
from core.events import ResponseDone, SpeakerRecognised, TranscriptionCompleted, TurnTimeline
from core.named_key import NamedKey
from core.ports import ToolContext, ToolOutcome, ToolSpec
from core.speakers import SpeakerMatch
from engines.base.speaker import SpeakerResult, VoiceQuality
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from pipeline.user_turn.speaker import MAX_HEARD_MS
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition
from tests.pipeline.fakes import Adder, Kept, World, names, speak
from tests.pipeline.scenes import ANSWER_TIME_MS, ONE, SILENCE, counted, of, one_turn, run_session

ANNA = SpeakerMatch("spk_1", "Anna", 0.9)
TURN_MS = ((SILENCE, 200), (4000, 400), (SILENCE, ANSWER_TIME_MS))


class ScriptedVoices(SpeakerRecognition):
    """Hears `match` in every utterance, after `delay_s`."""

    def __init__(
        self, match: SpeakerMatch | None = ANNA, *, people: int = 2, delay_s: float = 0.02
    ) -> None:
        self.match, self.people, self.delay_s = match, people, delay_s
        self.heard: list[float] = []
        "Length of each sound that was compared, in seconds."
        self.held: list[bool] = []
        self.is_broken = False
        self.vector = b"\0" * 4

    def count_people(self, key: NamedKey | None) -> int:
        return self.people

    @contextmanager
    def hold(self, key: NamedKey | None) -> Iterator[None]:
        self.held.append(True)
        yield
        self.held.append(False)

    async def compare(
        self, pcm: Pcm, key: NamedKey | None, priority: SpeakerPriority
    ) -> tuple[SpeakerMatch | None, SpeakerResult]:
        assert priority is SpeakerPriority.TURN
        self.heard.append(len(pcm) / ASR_RATE_HZ)
        await asyncio.sleep(self.delay_s)
        if self.is_broken:
            raise EngineCrashed("speaker", "ge2e", "broken on purpose")
        return self.match, SpeakerResult(self.vector, VoiceQuality(1000, -20.0, 30.0))


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
