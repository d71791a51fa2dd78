"""Tools that the client runs: the server sends the calls, and continues with their results."""

import asyncio

import numpy as np
import pytest

from core.conversation.events import (
    FunctionCallArgumentsDelta,
    ItemDeleted,
    ItemRetrieved,
    Modality,
    OutputItemAdded,
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechStopped,
)
from core.conversation.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemReference,
    MessageItem,
)
from core.conversation.usage import TokenUsage
from core.errors import Conflict, RequestError
from core.ports import ToolSpec
from engines.base import CallDelta, TextDelta, ToolCall
from pipeline.session.session import Session
from pipeline.shared.settings import NamedTool, ResponseRequest, SessionSettings, ToolChoice
from pipeline.tools.calls.results import NO_RESULT
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import of, run_session
from tests.pipeline.scripted import said, world

pytestmark = pytest.mark.many

LIGHT = ToolSpec("set_light", "Switches.", {"type": "object", "properties": {}})
TEXT = SessionSettings(modality="text", client_tools=(LIGHT,))
ON = ToolCall("0", "set_light", {"on": True})
OFF = ToolCall("0", "set_light", {"on": False})
SUM = ToolCall("1", "add", {"a": 2, "b": 2})


async def done(session: Session) -> None:
    await session.settled()


def outputs(events: list[SessionEvent]) -> list[list[str]]:
    """Returns the names and texts of the output of each response."""
    return [list(map(_output, end.output)) for end in of(ResponseDone, events)]


def _output(item: Item) -> str:
    assert isinstance(item, FunctionCallItem | MessageItem)
    return item.name if isinstance(item, FunctionCallItem) else item.text


def test_client_calls_follow_the_text_and_their_result_continues_the_conversation() -> None:
    there, llm = world([TextDelta("One moment."), ON, OFF])

    async def scene(session: Session) -> None:
        session.add_item(said("light on"))
        session.create_response(ResponseRequest())
        await done(session)
        history = there.conversations.get(session.conversation_id).history
        calls = [item for item in history.items if isinstance(item, FunctionCallItem)]
        session.add_item(FunctionOutputItem("item_o", calls[0].call_id, '{"ok":true}'))
        session.create_response(ResponseRequest())
        await done(session)

    events = run_session(there, scene, TEXT)
    assert outputs(events) == [["One moment.", "set_light", "set_light"], [NO_RESULT]]
    assert [end.status for end in of(ResponseDone, events)] == ["completed", "completed"]
    calls = [done.item for done in of(OutputItemDone, events)[1:3]]
    assert all(isinstance(c, FunctionCallItem) and c.status == "completed" for c in calls)
    assert len({c.call_id for c in calls if isinstance(c, FunctionCallItem)}) == 2  # own ids
    begun = of(OutputItemAdded, events)[1]
    assert isinstance(begun.item, FunctionCallItem)
    assert (begun.item.arguments, begun.item.status, begun.output_index) == ("", "in_progress", 1)
    roles = [message.role for message in llm.asked[-1]]
    assert roles == ["user", "assistant", "assistant", "tool", "assistant", "tool"]
    assert [m.text for m in llm.asked[-1] if m.role == "tool"] == ['{"ok":true}', NO_RESULT]


def test_arguments_are_sent_as_the_model_writes_them() -> None:
    pieces = (CallDelta("0", "set_light", '{"on"'), CallDelta("0", "set_light", ": true}"))
    unsaid, other = ToolCall("2", "set_light", {}), CallDelta("1", "add", '{"a": 2, "b": 2}')
    there, _ = world([*pieces, TextDelta("Now."), other, SUM, ON, unsaid])

    async def scene(session: Session) -> None:
        session.add_item(said("light on"))
        session.create_response(ResponseRequest())
        await done(session)

    events = run_session(there, scene, TEXT)
    story = [
        e
        for e in events
        if isinstance(e, FunctionCallArgumentsDelta | OutputItemAdded | OutputItemDone)
    ]
    deltas: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for e in story:
        what = e.delta if isinstance(e, FunctionCallArgumentsDelta) else type(e).__name__
        deltas[e.output_index].append(what)
    begun, ended = "OutputItemAdded", "OutputItemDone"
    assert sorted(deltas.values()) == [
        [begun, ended],
        [begun, '{"on"', ": true}", ended],
        [begun, "{}", ended],
    ]
    assert deltas[2] == [begun, "{}", ended]
    [end] = of(ResponseDone, events)
    assert sorted(map(_output, end.output)) == ["Now.", "set_light", "set_light"]
    places = {done.item.id: done.output_index for done in of(OutputItemDone, events)}
    assert [places[item.id] for item in end.output] == [0, 1, 2]
    arguments = [i.arguments for i in end.output if isinstance(i, FunctionCallItem)]
    assert arguments == ['{"on": true}', "{}"]
    by_item = {e.call_id for e in story if isinstance(e, FunctionCallArgumentsDelta)}
    assert by_item == {i.call_id for i in end.output if isinstance(i, FunctionCallItem)}


def test_a_call_that_is_cut_off_is_incomplete_and_deleted() -> None:
    there, llm = world([CallDelta("0", "set_light", '{"on"'), TextDelta("wait")])
    llm.lasts_s = 100

    async def scene(session: Session) -> None:
        session.add_item(said("light on"))
        session.create_response(ResponseRequest())
        await asyncio.sleep(1)
        session.cancel_response()
        await done(session)
        history = there.conversations.get(session.conversation_id).history
        assert not any(isinstance(item, FunctionCallItem) for item in history.items)

    events = run_session(there, scene, TEXT)
    [end] = of(ResponseDone, events)
    assert (end.status, [_output(item) for item in end.output]) == ("cancelled", ["wait"])
    cut = [d.item for d in of(OutputItemDone, events) if isinstance(d.item, FunctionCallItem)]
    assert [(call.status, call.arguments) for call in cut] == [("incomplete", '{"on"')]
    assert [gone.item_id for gone in of(ItemDeleted, events)] == [cut[0].id]


def test_written_out_of_band_responses_run_at_the_same_time() -> None:
    there, llm = world()
    llm.lasts_s = 1
    out_of_band = ResponseRequest(in_conversation=False, input=(said("aside"),), modality="text")

    async def scene(session: Session) -> None:
        session.add_item(said("hello"))
        session.create_response(ResponseRequest())  # spoken
        await asyncio.sleep(0.5)
        session.create_response(out_of_band)
        session.create_response(out_of_band)
        await asyncio.sleep(0.1)
        assert len(llm.asked) == 3
        second = session._responses.queue._out_of_band[1]
        session.cancel_response(second.response_id)
        session.cancel_response()
        await done(session)

    events = run_session(there, scene)
    ends = {end.response_id: end for end in of(ResponseDone, events)}
    order = [ends[created.response_id] for created in of(ResponseCreated, events)]
    assert [end.status for end in order] == ["cancelled", "completed", "cancelled"]
    assert [end.parameters.in_conversation for end in order] == [True, False, False]


def test_server_tools_of_a_round_run_before_the_client_call_is_sent() -> None:
    there, llm = world([SUM, ON])

    async def scene(session: Session) -> None:
        session.add_item(said("both"))
        session.create_response(ResponseRequest())
        await done(session)

    events = run_session(there, scene, TEXT)
    assert outputs(events) == [["set_light"]]
    assert llm.offered == [["add", "set_light"]]
    assert len(llm.asked) == 1  # the response ended with the client's call


def test_a_client_call_waits_for_the_end_of_the_turn() -> None:
    there, llm = world([ON])
    thought: list[int] = []

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 300))
        thought.append(len(llm.asked))
        await speak(session, (0, 2000))

    events = run_session(there, scene, SessionSettings(client_tools=(LIGHT,)))
    assert thought == [1]  # the model had called it already
    kinds = [type(event) for event in events]
    assert kinds.index(SpeechStopped) < kinds.index(OutputItemAdded)
    assert outputs(events) == [["set_light"]]


def test_a_client_call_of_a_dropped_draft_is_never_sent() -> None:
    there, _ = world([ON])

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 300), (2000, 400), (0, 3000))

    events = run_session(there, scene, SessionSettings(client_tools=(LIGHT,)))
    assert outputs(events) == [["one two"]]
    assert not any(
        isinstance(added.item, FunctionCallItem) for added in of(OutputItemAdded, events)
    )


@pytest.mark.parametrize(
    ("choice", "offered", "must_call"),
    [
        ("auto", ["add", "set_light"], False),
        ("none", [], False),
        ("required", ["add", "set_light"], True),
        (NamedTool("set_light"), ["set_light"], True),
    ],
)
def test_the_tool_choice_decides_which_tools_are_offered(
    choice: ToolChoice, offered: list[str], must_call: bool
) -> None:
    there, llm = world()

    async def scene(session: Session) -> None:
        session.add_item(said("hello"))
        session.create_response(ResponseRequest(tool_choice=choice))
        await done(session)

    run_session(there, scene, TEXT)
    assert (llm.offered, llm.options[0].must_call) == ([offered], must_call)


def test_a_forced_call_is_forced_only_in_the_first_round() -> None:
    there, llm = world([SUM])

    async def scene(session: Session) -> None:
        session.add_item(said("2 + 2"))
        session.create_response(ResponseRequest(tool_choice=NamedTool("add")))
        await done(session)

    run_session(there, scene, TEXT)
    assert [options.must_call for options in llm.options] == [True, False]
    assert llm.offered == [["add"], ["add", "set_light"]]


def test_a_choice_of_an_unknown_tool_fails_the_response() -> None:
    there, _ = world()

    async def scene(session: Session) -> None:
        session.create_response(ResponseRequest(tool_choice=NamedTool("lift")))
        await done(session)

    [end] = of(ResponseDone, run_session(there, scene, TEXT))
    assert (end.status, end.error_code) == ("failed", "no_such_tool")


def test_an_out_of_band_response_leaves_no_history() -> None:
    there, llm = world([TextDelta("spam")])
    notes = {"topic": "classify"}
    out_of_band = ResponseRequest(
        in_conversation=False,
        metadata=notes,
        input=(said("this?", "item_x"), ItemReference("item_u")),
        instructions="Classify.",
        client_tools=(),
        max_output_tokens=9,
    )

    async def scene(session: Session) -> None:
        session.add_item(said("hello"))
        session.create_response(ResponseRequest())
        session.create_response(out_of_band)  # while the first one runs
        session.create_response(replace_input(out_of_band))
        await done(session)
        with pytest.raises(RequestError, match="no item"):
            session.create_response(ResponseRequest(input=(ItemReference("gone"),)))
        items = there.conversations.get(session.conversation_id).history.items
        assert [item.text for item in items if isinstance(item, MessageItem)] == ["hello", "spam"]

    def replace_input(request: ResponseRequest) -> ResponseRequest:
        return ResponseRequest(in_conversation=False, input=(), metadata=request.metadata)

    events = run_session(there, scene, TEXT)
    first, second, third = of(ResponseCreated, events)
    assert (first.parameters.in_conversation, first.parameters.metadata) == (True, None)
    assert (second.parameters.in_conversation, second.parameters.metadata) == (False, notes)
    assert second.parameters.max_output_tokens == 9
    assert third.parameters == of(ResponseDone, events)[2].parameters
    assert [(m.role, m.text) for m in llm.asked[1]] == [
        ("system", "Classify."),
        ("user", "this?"),
        ("user", "hello"),
    ]
    assert llm.offered[1] == ["add"]


def test_waiting_out_of_band_responses_are_limited() -> None:
    there, _ = world()

    async def scene(session: Session) -> None:
        out_of_band = ResponseRequest(in_conversation=False, input=())
        for _ in range(8):
            session.create_response(out_of_band)
        with pytest.raises(Conflict) as caught:
            session.create_response(out_of_band)
        assert caught.value.code == "too_many_active_responses"
        await done(session)

    assert len(of(ResponseDone, run_session(there, scene, TEXT))) == 8


def test_an_answer_cut_by_its_token_limit_is_incomplete() -> None:
    there, _ = world([TextDelta("and so"), TokenUsage(10, 5)])

    async def scene(session: Session) -> None:
        session.create_response(ResponseRequest(max_output_tokens=5))
        await done(session)

    [end] = of(ResponseDone, run_session(there, scene, TEXT))
    assert (end.status, end.reason) == ("incomplete", "max_output_tokens")
    assert (end.usage, end.output[0].status) == (TokenUsage(10, 5), "incomplete")  # type: ignore[union-attr]


def test_items_can_be_retrieved_and_deleted() -> None:
    there, llm = world([SUM])

    async def scene(session: Session) -> None:
        session.add_item(said("secret", "item_a"))
        session.add_item(said("hello", "item_b"), "root")
        session.retrieve_item("item_a")
        session.delete_item("item_a")
        with pytest.raises(RequestError) as caught:
            session.delete_item("item_a")
        assert caught.value.code == "item_not_found"
        session.create_response(ResponseRequest())
        await done(session)
        history = there.conversations.get(session.conversation_id).history
        own = next(item.id for item in history.items if isinstance(item, FunctionCallItem))
        with pytest.raises(RequestError):  # calls of the server's own tools are internal
            session.retrieve_item(own)

    events = run_session(there, scene, TEXT)
    assert of(ItemRetrieved, events)[0].item == said("secret", "item_a")
    assert of(ItemDeleted, events) == [ItemDeleted("item_a")]
    assert [m.text for m in llm.asked[0]] == ["hello"]


def test_a_response_whose_item_was_deleted_can_be_interrupted() -> None:
    there = World()

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 1500))
        history = there.conversations.get(session.conversation_id).history
        session.delete_item(history.items[-1].id)
        await speak(session, (2000, 1500), (0, 2000))

    events = run_session(there, scene)
    assert of(ResponseDone, events)[-1].status == "completed"


def test_a_function_result_needs_its_call() -> None:
    async def scene(session: Session) -> None:
        with pytest.raises(RequestError) as caught:
            session.add_item(FunctionOutputItem("item_o", "call_lost", "{}"))
        assert (caught.value.code, caught.value.param) == ("item_not_found", "item.call_id")
        session.add_item(FunctionCallItem("item_c", "call_lost", "f", "{}"))
        session.add_item(FunctionOutputItem("item_o", "call_lost", "{}"))

    run_session(World(), scene, TEXT)


def test_a_truncated_text_stays_truncated() -> None:
    there = World()
    texts: list[str] = []

    async def scene(session: Session) -> None:
        session.add_item(said("one two three four five six"))
        session.create_response(ResponseRequest())
        await done(session)
        history = there.conversations.get(session.conversation_id).history
        answer = history.items[-1]
        for end_ms in (400, 900):
            session.truncate(answer.id, end_ms)
            now = history.find(answer.id)
            assert isinstance(now, MessageItem)
            texts.append(now.text)
        session.delete_item(answer.id)
        with pytest.raises(RequestError) as caught:
            session.truncate(answer.id, 0)
        assert caught.value.code == "item_not_found"

    run_session(there, scene, paced_by="client")
    assert texts[0] == texts[1] != ""


def test_a_call_with_too_deep_arguments_fails_only_its_response() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"a": deep}
    there, _ = world([ToolCall("0", "set_light", deep)], [TextDelta("Still here.")])

    async def scene(session: Session) -> None:
        for number in range(2):
            session.add_item(said("light on", f"item_{number}"))
            session.create_response(ResponseRequest())
            await done(session)

    ends = of(ResponseDone, run_session(there, scene, TEXT))
    assert [(end.status, end.error_code) for end in ends] == [
        ("failed", "engine_failed"),
        ("completed", None),
    ]


def test_cancel_without_an_id_cancels_the_response_of_the_conversation() -> None:
    there, llm = world()
    llm.lasts_s = 1
    out_of_band = ResponseRequest(
        in_conversation=False, input=(said("aside"),)
    )  # spoken: one by one

    async def scene(session: Session) -> None:
        session.create_response(out_of_band)
        await asyncio.sleep(0.5)
        with pytest.raises(Conflict) as caught:
            session.cancel_response()
        assert caught.value.code == "response_cancel_not_active"
        session.add_item(said("hello"))
        session.create_response(ResponseRequest())
        session.create_response(out_of_band)
        session.cancel_response()
        await speak(session, (0, 6000))

    ends = of(ResponseDone, run_session(there, scene))
    story = [(end.parameters.in_conversation, end.status) for end in ends]
    assert story == [(False, "completed"), (True, "cancelled"), (False, "completed")]


def test_cancelling_a_waiting_response_leaves_an_out_of_band_one_running() -> None:
    there, llm = world()
    there.asr.delay_s = 1
    llm.lasts_s = 2
    out_of_band = ResponseRequest(in_conversation=False, input=(said("aside"),))

    async def scene(session: Session) -> None:
        session.create_response(out_of_band)
        await asyncio.sleep(0.1)
        recording = np.full(16_000, 1000, np.int16)
        session.add_item(MessageItem("a", "user", (AudioPart(),)), None, {0: recording})
        session.create_response(ResponseRequest())
        session.cancel_response()
        await speak(session, (0, 6000))

    ends = of(ResponseDone, run_session(there, scene))
    story = [(end.parameters.in_conversation, end.status) for end in ends]
    assert story == [(False, "completed"), (True, "cancelled")]


@pytest.mark.parametrize("modality", ["text", "audio"])
def test_a_closed_session_creates_no_responses(modality: Modality) -> None:
    there, llm = world()
    out_of_band = ResponseRequest(in_conversation=False, input=(), modality=modality)

    async def scene(session: Session) -> None:
        session.close()
        session.create_response(out_of_band)
        await asyncio.sleep(0.1)
        session.create_response(out_of_band)

    assert not of(ResponseCreated, run_session(there, scene))
    assert not llm.asked
