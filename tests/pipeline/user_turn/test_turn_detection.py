"""How long a session waits for the rest of a sentence, by the evidence so far."""

from collections.abc import Sequence

import pytest

from core.audio import Pcm
from core.conversation.events import TurnTimeline
from core.errors import EngineError
from core.ports import ToolSpec
from engines.base import Message
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.user_turn.speech_detection.endpointing import DELAYS, endpoint_delay_ms
from pipeline.user_turn.turn_detection import NOT_UNDERSTOOD, UNDERSTOOD
from tests.pipeline.fakes import EchoLlm, World, speak
from tests.pipeline.scenes import of, run_session

pytestmark = pytest.mark.many

SILENCE, ONE = 0, 1000


class Strict(EchoLlm):
    """A model that understands everything or nothing, or fails."""

    def __init__(self, *, knows: bool | None, may_become: bool = True) -> None:
        super().__init__()
        self.knows, self.may_become = knows, may_become
        self.judged: list[str] = []

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        self.judged.append(messages[-1].text)
        if self.knows is None:
            raise EngineError("llm", self.name, "fails on purpose")
        return self.knows

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        assert self.knows is False
        return self.may_become


class Sounds:
    """An end-of-turn engine with a fixed probability."""

    name = "sounds"

    def __init__(self, probability: float) -> None:
        self.said = probability

    def probability(self, pcm: Pcm) -> float | None:
        return self.said


def waited_ms(world: World) -> float:
    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 3000))

    settings = SessionSettings(turn_detection=TurnDetection(kind="semantic_vad"))
    (turn,) = of(TurnTimeline, run_session(world, scenario, settings))
    return turn.marks["endpoint"]


def test_without_evidence_the_wait_is_the_usual_one() -> None:
    assert waited_ms(World()) == pytest.approx(DELAYS["auto"].unknown, abs=20)


@pytest.mark.parametrize(("knows", "evidence"), [(True, UNDERSTOOD), (False, NOT_UNDERSTOOD)])
def test_a_text_that_the_model_understands_ends_sooner(knows: bool, evidence: float) -> None:
    llm = Strict(knows=knows)
    assert waited_ms(World(llm=llm)) == pytest.approx(endpoint_delay_ms("auto", evidence), abs=20)
    assert llm.judged == ["one"]


def test_words_that_begin_no_command_say_nothing_about_the_end() -> None:
    world = World(llm=Strict(knows=False, may_become=False))
    assert waited_ms(world) == pytest.approx(DELAYS["auto"].unknown, abs=20)


def test_a_model_that_fails_to_judge_changes_nothing() -> None:
    world = World(llm=Strict(knows=None))
    assert waited_ms(world) == pytest.approx(DELAYS["auto"].unknown, abs=20)


def test_audio_evidence_can_outweigh_the_model() -> None:
    world = World(llm=Strict(knows=False))
    world.endpoint = Sounds(0.95)
    assert waited_ms(world) < endpoint_delay_ms("auto", NOT_UNDERSTOOD)
