"""When the sound of an answer is over, by the clock of the server or the client; each turn is
reported once, after that."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.conversation.events import (
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    SessionEvent,
    SpeechStarted,
    TruncationPoint,
    TurnTimeline,
)
from core.conversation.items import MessageItem, TextPart
from core.errors import RequestError
from pipeline.playout.playout import (
    CLIENT_RATE_HZ,
    MAX_PIECE_SAMPLES,
    ClientPlayoutClock,
    Playout,
    PlayoutWriter,
)
from pipeline.response.playback import TRUNCATE_S
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LevelAsr, LoopClock, ToneTts, World, speak
from tests.pipeline.scenes import of
from tests.pipeline.scripted import WordTts

pytestmark = pytest.mark.many

SILENCE, ONE, TWO = 0, 1000, 2000
Told = list[tuple[float, SessionEvent]]


def live(
    world: World, paced_by: PlayoutPacing, scenario: Callable[[Session, Told], Awaitable[None]]
) -> Told:
    """Runs a scenario and returns all events of the session, each with its time."""
    told: Told = []

    async def note(session: Session) -> None:
        async for event in session.events:
            told.append((asyncio.get_running_loop().time(), event))

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by=paced_by)
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(note(session))
            await scenario(session, told)

    run_virtual(main())
    return told


def at(told: Told, kind: type[SessionEvent]) -> float:
    return next(when for when, event in told if isinstance(event, kind))


def traced(told: Told) -> list[TurnTimeline]:
    return of(TurnTimeline, [event for _, event in told])


def ask(session: Session, words: str = "hello") -> None:
    session.add_item(MessageItem(f"item_{words}", "user", (TextPart(words),)))
    session.create_response(ResponseRequest())


def length_ms(turn: TurnTimeline) -> float:
    """Returns the time from the first packet to the end of the sound."""
    return turn.marks["playout_end"] - turn.marks["playout_start"]


def test_server_paced_sound_ends_with_its_last_packet() -> None:
    async def scenario(session: Session, _: Told) -> None:
        await speak(session, (ONE, 600), (SILENCE, 4000))

    told = live(World(), "server", scenario)
    (turn,) = traced(told)
    assert length_ms(turn) == pytest.approx(980, abs=0.2), "50 packets"
    assert at(told, TurnTimeline) == at(told, PlayoutStopped)
    assert told[-1][1] is turn


def test_the_sound_of_an_interrupted_answer_ends_where_it_stopped() -> None:
    """It does not end when the speech was judged to be an interruption, which is later."""
    world = World(tts=ToneTts(clause_ms=5000))

    async def scenario(session: Session, _: Told) -> None:
        await speak(session, (ONE, 600), (SILENCE, 1500), (TWO, 800), (SILENCE, 300))

    told = live(world, "server", scenario)
    turn = traced(told)[0]
    assert turn.status == "answered"
    assert turn.response_latency_ms == turn.marks["playout_start"]
    assert at(told, TurnTimeline) == at(told, PlayoutCleared)
    origin = at(told, PlayoutStarted) - turn.marks["playout_start"] / 1000
    starts = [when for when, event in told if isinstance(event, SpeechStarted)]
    ended_at = origin + turn.marks["playout_end"] / 1000
    assert 0 <= starts[1] - ended_at <= 0.021, "one packet at most"
    assert at(told, PlayoutCleared) - ended_at > 0.1
    (pause_s,) = world.metrics.observed["earshot_barge_in_pause_seconds"]
    assert 0 <= pause_s <= 0.021


def test_client_paced_sound_ends_when_the_client_has_played_it() -> None:
    async def scenario(session: Session, _: Told) -> None:
        ask(session)
        await asyncio.sleep(5)

    told = live(World(), "client", scenario)
    (turn,) = traced(told)
    assert at(told, PlayoutStopped) < at(told, TurnTimeline) - 0.5, "it was sent faster"
    assert length_ms(turn) == pytest.approx(1000, abs=0.2)
    first_packet = at(told, TurnTimeline) - 1
    assert first_packet == pytest.approx(turn.marks["playout_start"] / 1000, abs=1e-3)


def test_the_first_truncation_tells_where_the_client_stopped() -> None:
    async def scenario(session: Session, told: Told) -> None:
        ask(session)
        await asyncio.sleep(0.9)
        added = next(event for _, event in told if isinstance(event, OutputItemAdded))
        session.truncate(added.item.id, 400)
        session.truncate(added.item.id, 300)
        await asyncio.sleep(5)

    told = live(World(), "client", scenario)
    (turn,) = traced(told)
    assert length_ms(turn) == pytest.approx(400, abs=0.2)
    assert at(told, TurnTimeline) == pytest.approx(0.9)


@pytest.mark.parametrize("truncates", [False, True])
def test_a_client_stops_its_sound_at_the_start_of_speech(truncates: bool) -> None:
    world = World(tts=ToneTts(clause_ms=8000))

    async def scenario(session: Session, told: Told) -> None:
        ask(session)
        await speak(session, (SILENCE, 2000), (TWO, 400))
        if truncates:
            added = next(event for _, event in told if isinstance(event, OutputItemAdded))
            session.truncate(added.item.id, 1500)
        await speak(session, (SILENCE, 300))

    told = live(world, "client", scenario)
    turn = traced(told)[0]
    began_at = at(told, SpeechStarted)
    ended_at = turn.marks["playout_end"] / 1000
    if truncates:
        assert length_ms(turn) == pytest.approx(1500, abs=0.2)
        assert at(told, TurnTimeline) == pytest.approx(2.4, abs=1e-3)
    else:
        assert ended_at == pytest.approx(began_at, abs=1e-3)
        assert at(told, TurnTimeline) == pytest.approx(began_at + TRUNCATE_S)


@pytest.mark.parametrize("paced_by", ["server", "client"])
@pytest.mark.parametrize(("tts", "by"), [(ToneTts, "proportion"), (WordTts, "word_times")])
def test_a_cut_answer_reports_how_its_words_were_counted(
    tts: type[ToneTts], by: Literal["proportion", "word_times"], paced_by: PlayoutPacing
) -> None:
    world = World(tts=tts())

    async def scenario(session: Session, told: Told) -> None:
        ask(session, "a b c")
        await speak(session, (SILENCE, 800))
        if paced_by == "client":
            added = next(event for _, event in told if isinstance(event, OutputItemAdded))
            session.truncate(added.item.id, 700)
        else:
            session.clear_output()
        await speak(session, (SILENCE, 300))
        ask(session, "whole")
        await speak(session, (SILENCE, 3000))

    cut, whole = traced(live(world, paced_by, scenario))
    assert cut.cut == TruncationPoint(3, by)
    assert whole.cut is None


class Ragged(ToneTts):
    """A voice that speaks a second and 13 samples, because a voice need not end on a whole
    millisecond."""

    async def speak(self, *args: Any, **options: Any) -> AsyncGenerator[AudioFrame, None]:
        async for frame in super().speak(*args, **options):
            yield frame
        yield AudioFrame(np.full(13, 9000, np.int16), 24_000, 24_000)


@pytest.mark.parametrize("played_ms", [1000, 1001])
def test_truncation_after_the_last_millisecond_keeps_the_whole_text(played_ms: int) -> None:
    world, texts = World(tts=Ragged()), list[str]()

    async def scenario(session: Session, told: Told) -> None:
        ask(session, "one two three")
        await asyncio.sleep(3)
        sound = of(OutputAudioDelta, [event for _, event in told])
        assert sum(len(event.pcm) for event in sound) == 24_013
        history = world.conversations.get(session.conversation_id).history
        for end_ms in (played_ms, 700):
            session.truncate(sound[0].item_id, end_ms)
            answer = history.find(sound[0].item_id)
            assert isinstance(answer, MessageItem)
            texts.append(answer.text)
        with pytest.raises(RequestError) as refused:
            session.truncate(sound[0].item_id, 1002)
        assert "0 to 1001 ms" in str(refused.value)

    told = live(world, "client", scenario)
    said = next(event.item for _, event in told if isinstance(event, OutputItemDone))
    assert isinstance(said, MessageItem)
    assert texts[0] == said.text.strip()
    assert said.text.startswith(texts[1])
    assert texts[1] != texts[0]


def test_the_next_answer_waits_in_the_queue_of_the_client() -> None:
    async def scenario(session: Session, _: Told) -> None:
        ask(session)
        await asyncio.sleep(0.3)
        assert session.say("ding dong")
        await asyncio.sleep(10)

    first, second = (turn for turn in traced(live(World(), "client", scenario)))
    assert length_ms(first) == pytest.approx(1000, abs=0.2)
    assert length_ms(second) > 1500, "it was sent while the client played the first"


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_the_end_of_a_session_ends_its_sound(paced_by: PlayoutPacing) -> None:
    async def scenario(session: Session, _: Told) -> None:
        ask(session)
        await speak(session, (SILENCE, 600))

    (turn,) = traced(live(World(), paced_by, scenario))
    assert 0 < length_ms(turn) < 600
    assert turn.status == "answered"


async def heard(session: Session) -> None:
    """Ends while the utterance is being transcribed."""
    await speak(session, (ONE, 600), (SILENCE, 600))


async def asked_twice(session: Session) -> None:
    """Ends while one answer is given and announcements wait."""
    ask(session)
    await asyncio.sleep(0.1)
    assert session.say("ding")
    assert session.say("dong")


async def unheard(session: Session) -> None:
    """Ends when the answer is complete but nobody pulled it."""
    ask(session)
    await asyncio.sleep(3)


async def not_asked_for(session: Session) -> None:
    """Ends in push-to-talk without a request for a response."""
    session.configure(SessionSettings(turn_detection=None))
    await speak(session, (ONE, 600))
    session.commit_input()
    await asyncio.sleep(3)


@pytest.mark.parametrize(
    ("scene", "statuses"),
    [
        (heard, ["cancelled"]),
        (asked_twice, ["cancelled"] * 3),
        (unheard, ["cancelled"]),
        (not_asked_for, ["transcribed"]),
    ],
)
def test_every_turn_is_reported_when_its_session_ends(
    scene: Callable[[Session], Awaitable[None]], statuses: list[str]
) -> None:
    async def scenario(session: Session, _: Told) -> None:
        await scene(session)

    world = World(asr=LevelAsr(delay_s=2 if scene is heard else 0.05))
    told = live(world, "server", scenario)
    assert [turn.status for turn in traced(told)] == statuses
    assert world.metrics.counts["earshot_turns"] == len(statuses)
    assert not any("playout_end" in turn.marks for turn in traced(told))
    responses = {event.response_id for _, event in told if isinstance(event, ResponseCreated)}
    assert responses <= {turn.response_id for turn in traced(told)}


# Gaps in the sound of a speaker.


class Ignored:
    def playout_started(self, writer: PlayoutWriter) -> None: ...
    def playout_stopped(self, writer: PlayoutWriter) -> None: ...
    def playout_cleared(self, writer: PlayoutWriter) -> None: ...


def opened(
    paced_by: PlayoutPacing, counts: Counts, deliver: Callable[[str, Pcm], None] = lambda *_: None
) -> Playout:
    clock = LoopClock()
    return Playout(paced_by, Ignored(), clock, ClientPlayoutClock(clock), counts, deliver)


async def pulled(playout: Playout, frames: int) -> None:
    for _ in range(frames):
        playout.pull()
        await asyncio.sleep(0.02)


def tone(length_ms: int) -> Pcm:
    return np.full(length_ms * CLIENT_RATE_HZ // 1000, 9000, np.int16)


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_gaps_are_counted_and_delay_the_end_of_the_sound(paced_by: PlayoutPacing) -> None:
    """Writes 100 ms of sound every 150 ms."""
    counts, ends, moments = Counts(), list[float](), list[float]()

    async def main() -> None:
        playout = opened(paced_by, counts)
        writer = playout.open("resp_1", CLIENT_RATE_HZ)
        for number in range(4):
            await writer.write(tone(100))
            if number == 3:
                await writer.finish()
            await pulled(playout, 7)
            await asyncio.sleep(0.01)
        ends.append(writer.ends_at)
        moments.extend(writer.played_at(ms) for ms in (0, 50, 150, 1000))

    run_virtual(main())
    assert counts.counts["earshot_playout_underruns"] == 3
    assert ends[0] == pytest.approx(0.55, abs=0.02)
    if paced_by == "client":
        assert moments == pytest.approx([0, 0.05, 0.2, 0.55], abs=0.02)


def test_neither_a_pause_nor_the_end_counts_as_a_gap() -> None:
    counts = Counts()

    async def main() -> None:
        playout = opened("server", counts)
        writer = playout.open("resp_1", CLIENT_RATE_HZ)
        await writer.write(tone(200))
        playout.pull()
        playout.pause()
        assert playout.pull() is None
        playout.resume()
        await writer.finish()
        await pulled(playout, 15)
        playout.open("resp_2", CLIENT_RATE_HZ)
        playout.pull()

    run_virtual(main())
    assert "earshot_playout_underruns" not in counts.counts


def test_a_client_gets_the_pieces_of_the_voice_up_to_a_largest_size() -> None:
    handed, written = list[Pcm](), list[int]()
    said = np.arange(MAX_PIECE_SAMPLES * 2 + 107, dtype=np.int16)
    cuts = [7, 7 + 480, 7 + 480 + MAX_PIECE_SAMPLES + 3]

    async def main() -> None:
        playout = opened("client", Counts(), lambda _, pcm: handed.append(pcm))
        writer = playout.open("resp_1", CLIENT_RATE_HZ)
        for part in np.split(said, cuts):
            await writer.write(part)
        await writer.finish()
        written.extend([writer.written, writer.played])

    run_virtual(main())
    rest = len(said) - cuts[-1]
    assert [len(pcm) for pcm in handed] == [7, 480, MAX_PIECE_SAMPLES, 3, rest]
    assert np.array_equal(np.concatenate(handed), said)
    assert written == [len(said)] * 2


def test_what_a_buffer_holds_when_an_answer_is_cut_off_was_not_heard() -> None:
    class Buffer:
        drops = 0

        def drop(self) -> float:
            self.drops += 1
            return 60

    async def main() -> None:
        playout, buffer = opened("server", Counts()), Buffer()
        playout.speaker = buffer
        writer = playout.open("resp_1", CLIENT_RATE_HZ)
        await writer.write(tone(400))
        await pulled(playout, 10)
        states = [playout.is_paused]
        playout.pause()
        states.append(playout.is_paused)
        assert states == [False, True]
        assert playout.clear() is writer
        assert writer.heard_ms == pytest.approx(140)
        assert buffer.drops == 1
        playout.clear()  # nothing sounds
        assert buffer.drops == 1

    run_virtual(main())
