"""Items that clients add: their audio is transcribed, and their images go to the model."""

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from core.audio import Pcm
from core.conversation.events import (
    ItemAdded,
    ItemDone,
    ResponseCreated,
    ResponseDone,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.conversation.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    McpApprovalRequestItem,
    McpListItem,
    McpToolDefinition,
    MessageItem,
    TextPart,
)
from core.errors import Conflict, RequestError
from pipeline.conversation.conversation import Conversation
from pipeline.conversation.history import MAX_IMAGE_BYTES, MAX_TEXT_BYTES, History
from pipeline.session.items import MAX_WAITING
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.tools.calls.results import NO_RESULT
from tests.pipeline.fakes import EchoLlm, LevelAsr, World, speak
from tests.pipeline.scenes import of, run_session

pytestmark = pytest.mark.many

TEXT = SessionSettings(modality="text")
IMAGE = ImagePart("data:image/png;base64,iVBORw0KGgo=")


@dataclass
class SeeingLlm(EchoLlm):
    accepts_images: bool = True

    def __post_init__(self) -> None:
        super().__init__()


def spoken(item_id: str, *parts: TextPart | AudioPart) -> MessageItem:
    return MessageItem(item_id, "user", parts or (AudioPart(),))


def sound(level: int, ms: int = 600) -> Pcm:
    return np.full(16 * ms, level, np.int16)


def history(world: World, session: Session) -> list[str]:
    items = world.conversations.get(session.conversation_id).history.items
    return [item.text for item in items if isinstance(item, MessageItem)]


def test_a_response_waits_for_the_transcript_of_an_added_item() -> None:
    world = World()

    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(1000)})
        session.create_response(ResponseRequest())
        await session.settled()
        assert history(world, session) == ["one", "you said one. "]

    events = run_session(world, scene, TEXT)
    kinds = [type(event) for event in events]
    order = [ItemAdded, ItemDone, TranscriptionCompleted, ResponseCreated, ResponseDone]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
    [told] = of(TranscriptionCompleted, events)
    assert (told.item_id, told.transcript, told.audio_s, told.content_index) == ("a", "one", 0.6, 0)


def test_each_audio_part_gets_its_own_transcript() -> None:
    world = World()
    item = spoken("a", AudioPart(), TextPart("and"), AudioPart())

    async def scene(session: Session) -> None:
        session.add_item(item, None, {0: sound(1000), 2: sound(2000)})
        await session.settled()
        assert history(world, session) == ["one and two"]

    told = of(TranscriptionCompleted, run_session(world, scene, TEXT))
    assert [(one.content_index, one.transcript) for one in told] == [(0, "one"), (2, "two")]


def test_an_added_item_creates_no_response() -> None:
    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(1000)})
        await session.settled()

    assert of(ResponseCreated, run_session(World(), scene)) == []


def test_a_failed_transcription_fails_the_response_that_waits_for_it() -> None:
    world = World()
    world.asr.broken = True

    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(1000)})
        session.create_response(ResponseRequest())
        await session.settled()
        world.asr.broken = False
        session.add_item(spoken("b"), None, {0: sound(2000)})
        session.create_response(ResponseRequest())
        await session.settled()

    events = run_session(world, scene, TEXT)
    [failed] = of(TranscriptionFailed, events)
    assert (failed.item_id, failed.code, failed.content_index) == ("a", "engine_failed", 0)
    assert [end.status for end in of(ResponseDone, events)] == ["failed", "completed"]


def test_added_recordings_are_limited_and_transcribed_one_at_a_time() -> None:
    world = World(asr=LevelAsr(delay_s=1))

    async def scene(session: Session) -> None:
        for n in range(MAX_WAITING):
            session.add_item(spoken(str(n)), None, {0: sound(1000)})
        with pytest.raises(Conflict) as caught:
            session.add_item(spoken("x"), None, {0: sound(1000)})
        assert caught.value.code == "too_many_recordings"
        session.add_item(spoken("y", TextPart("written")))
        await session.settled()

    assert len(of(TranscriptionCompleted, run_session(world, scene, TEXT))) == MAX_WAITING
    assert world.asr.most_running == 1


def test_a_spoken_turn_and_an_added_recording_get_one_response() -> None:
    world = World(asr=LevelAsr(delay_s=0.5))

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (2000, 600), (0, 520))
        session.add_item(spoken("a"), None, {0: sound(1000, 3000)})
        await speak(session, (0, 4000))

    events = run_session(world, scene, TEXT)
    assert len(of(ResponseDone, events)) == 1
    assert sorted(one.transcript for one in of(TranscriptionCompleted, events)) == ["one", "two"]


def test_an_item_can_be_deleted_and_a_session_ended_during_transcription() -> None:
    world = World(asr=LevelAsr(delay_s=1))

    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(1000)})
        await asyncio.sleep(0.1)
        session.delete_item("a")
        await session.settled()
        assert history(world, session) == []
        session.add_item(spoken("b"), None, {0: sound(1000)})
        await asyncio.sleep(0.1)

    events = run_session(world, scene, TEXT)
    assert not of(TranscriptionCompleted, events)
    assert len(world.asr.forgotten) >= 1


def test_a_previous_item_must_exist() -> None:
    async def scene(session: Session) -> None:
        for previous in ("nobody", ""):
            with pytest.raises(RequestError) as caught:
                session.add_item(spoken("a"), previous, {0: sound(1000)})
            assert caught.value.code == "item_not_found"
        session.add_item(spoken("b", TextPart("b")))
        session.add_item(spoken("c", TextPart("c")), "root")
        session.add_item(spoken("d", TextPart("d")), "c")
        await session.settled()

    events = run_session(World(), scene, TEXT)
    added = [(one.item.id, one.previous_item_id) for one in of(ItemAdded, events)]
    assert added == [("b", None), ("c", None), ("d", "c")]
    assert of(TranscriptionCompleted, events) == []


def test_images_go_to_a_model_that_sees() -> None:
    llm = SeeingLlm()
    world = World(llm=llm)

    async def scene(session: Session) -> None:
        session.add_item(MessageItem("a", "user", (TextPart("what is it?"), IMAGE)))
        session.create_response(ResponseRequest())
        await session.settled()
        own = MessageItem("x", "user", (IMAGE,))
        session.create_response(ResponseRequest(in_conversation=False, input=(own,)))
        await session.settled()

    run_session(world, scene, TEXT)
    asked = [[(m.text, m.images) for m in messages] for messages in llm.asked]
    assert asked == [[("what is it?", (IMAGE,))], [("", (IMAGE,))]]


@pytest.mark.parametrize("llm", [EchoLlm(), SeeingLlm(accepts_images=False)])
def test_images_are_refused_for_a_model_that_does_not_see(llm: EchoLlm) -> None:
    item = MessageItem("a", "user", (TextPart("what is it?"), IMAGE))

    async def scene(session: Session) -> None:
        with pytest.raises(RequestError, match="Allowed: input_text, input_audio") as caught:
            session.add_item(item)
        assert caught.value.code == "unsupported_content"
        assert caught.value.param == "item.content[1].type"
        with pytest.raises(RequestError) as caught:
            session.create_response(ResponseRequest(input=(spoken("b", TextPart("")), item)))
        assert caught.value.param == "response.input[1].content[1].type"

    assert of(ItemAdded, run_session(World(llm=llm), scene, TEXT)) == []


def test_the_newest_images_are_kept_until_the_session_ends() -> None:
    kept = History()
    image = ImagePart("x" * (MAX_IMAGE_BYTES // 3), "low")
    for n in range(4):
        kept.add(MessageItem(str(n), "user", (TextPart(str(n)), image)))
    assert [bool(i.images) for i in kept.items if isinstance(i, MessageItem)] == [False] + [
        True
    ] * 3
    assert [m.text for m in kept.messages("")] == ["0", "1", "2", "3"]
    world = World(llm=SeeingLlm())
    held: list[Conversation] = []

    async def scene(session: Session) -> None:
        held.append(world.conversations.get(session.conversation_id))
        session.add_item(MessageItem("a", "user", (IMAGE,)))

    run_session(world, scene, TEXT)
    [item] = held[0].history.items
    assert item == MessageItem("a", "user", (ImagePart(""),))


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5])
def test_a_deleted_item_gets_no_transcript_and_no_response_waits_for_it(after_s: float) -> None:
    world = World(asr=LevelAsr(delay_s=1))

    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(3000)})
        session.add_item(spoken("gone"), None, {0: sound(1000)})
        session.create_response(ResponseRequest())
        await asyncio.sleep(after_s)
        session.delete_item("gone")
        await session.settled()
        assert history(world, session) == ["three", "you said three. "]
        session.add_item(spoken("gone too"), None, {0: sound(2000)})
        session.delete_item("gone too")
        await session.settled()

    events = run_session(world, scene, TEXT)
    assert [told.item_id for told in of(TranscriptionCompleted, events)] == ["a"]
    assert [end.status for end in of(ResponseDone, events)] == ["completed"]
    assert len(world.asr.asked) == (2 if after_s > 1 else 1)


def test_a_failed_transcription_of_a_deleted_item_fails_nothing() -> None:
    world = World(asr=LevelAsr(delay_s=1))
    world.asr.broken = True

    async def scene(session: Session) -> None:
        session.add_item(spoken("gone"), None, {0: sound(1000)})
        session.create_response(ResponseRequest())
        await asyncio.sleep(0.5)
        session.delete_item("gone")
        await session.settled()

    events = run_session(world, scene, TEXT)
    assert not of(TranscriptionFailed, events)
    assert [end.status for end in of(ResponseDone, events)] == ["completed"]


def test_a_new_item_with_the_id_of_a_deleted_one_gets_its_own_transcript() -> None:
    world = World(asr=LevelAsr(delay_s=1))

    async def scene(session: Session) -> None:
        session.add_item(spoken("a"), None, {0: sound(1000)})
        await asyncio.sleep(0.5)
        session.delete_item("a")
        session.add_item(spoken("a"), None, {0: sound(2000)})
        await session.settled()
        assert history(world, session) == ["two"]

    [told] = of(TranscriptionCompleted, run_session(world, scene, TEXT))
    assert told.transcript == "two"


def test_a_restored_approval_request_is_a_call_without_a_result() -> None:
    kept = History()
    names = "kitchen", "cook it"
    with pytest.raises(RequestError) as caught:
        kept.add(McpApprovalRequestItem("bad", *names, "[1", "cook_it"))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "item.arguments")
    kept.add(
        McpListItem("list", "kitchen", (McpToolDefinition("cook it", "", {"type": "object"}),))
    )
    kept.add(McpApprovalRequestItem("ask", *names, '{"dish": "soup"}', "cook_it"))
    asked, told = kept.messages("")
    assert [(call.name, call.arguments) for call in asked.tool_calls] == [
        ("cook_it", {"dish": "soup"})
    ]
    assert (told.call_id, told.text) == ("ask", NO_RESULT)


def test_tool_schemas_count_as_text_of_the_history() -> None:
    kept = History()
    for number in range(6):
        schema = {"description": "x" * (MAX_TEXT_BYTES // 4 - 100)}
        kept.add(McpListItem(str(number), "kitchen", (McpToolDefinition("cook", "", schema),)))
    assert [item.id for item in kept.items] == ["2", "3", "4", "5"]


def test_a_history_keeps_a_bounded_amount_of_text() -> None:
    kept = History()
    quarter = "x" * (MAX_TEXT_BYTES // 4)
    for number in range(6):
        kept.add(MessageItem(str(number), "user", (TextPart(quarter),)))
    assert [item.id for item in kept.items] == ["2", "3", "4", "5"]
    kept.add(FunctionCallItem("call", "c", "f", '{"a":"' + quarter + '"}'))
    kept.add(FunctionOutputItem("result", "c", quarter))
    assert [item.id for item in kept.items] == ["5", "call", "result"]
    kept.add(MessageItem("huge", "user", (TextPart(quarter * 5),)))
    assert [item.id for item in kept.items] == ["huge"], "the newest stays"
