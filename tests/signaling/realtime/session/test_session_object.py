"""The session object: partial merges, null, our own fields, refused fields, and the session that is
shown."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.realtime import SessionUpdatedEvent

from core.conversation.items import ItemReference, MessageItem, TextPart
from core.errors import Conflict, RequestError
from core.ports import ToolSpec
from pipeline.shared.settings import (
    ContextTruncation,
    NamedTool,
    ResponseRequest,
    SessionSettings,
    TurnDetection,
)
from signaling.realtime.protocol.client_events import ResponseCreate
from signaling.realtime.protocol.decode import decode
from signaling.realtime.session.response import response_request
from signaling.realtime.session.settings import SessionConfiguration, check_unchanged, session_json
from tests.signaling.realtime.client_events import after, asked, decoding, heard, realtime

F = {"type": "function", "name": "f"}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


def spoken(**fields: Any) -> dict[str, Any]:
    return realtime(audio={"output": fields})


def vad(**fields: Any) -> dict[str, Any]:
    return heard(turn_detection={"type": "server_vad", **fields})


FAR = {"type": "far_field"}
RATIO = {
    "type": "retention_ratio",
    "retention_ratio": 0.5,
    "token_limits": {"post_instructions": 2000},
}

FRESH = SessionSettings()
MERGES: list[tuple[str, tuple[dict[str, Any], ...], SessionSettings]] = [
    ("nothing", (realtime(),), FRESH),
    (
        "instructions",
        (realtime(instructions="Be brief."),),
        replace(FRESH, instructions="Be brief."),
    ),
    ("none wanted", (realtime(instructions=""),), replace(FRESH, is_uninstructed=True)),
    (
        "none wanted stays",
        (realtime(instructions=""), spoken(speed=1.5)),
        replace(FRESH, is_uninstructed=True, speed=1.5),
    ),
    ("null wants ours", (realtime(instructions=""), realtime(instructions=None)), FRESH),
    (
        "none wanted, then some",
        (realtime(instructions=""), realtime(instructions="x")),
        replace(FRESH, instructions="x"),
    ),
    ("null clears", (realtime(instructions="x"), realtime(instructions=None)), FRESH),
    (
        "not sent stays",
        (realtime(instructions="x"), spoken(speed=1.5)),
        replace(FRESH, instructions="x", speed=1.5),
    ),
    ("text", (realtime(output_modalities=["text"]),), replace(FRESH, modality="text")),
    (
        "modalities cleared",
        (realtime(output_modalities=["text"]), realtime(output_modalities=None)),
        FRESH,
    ),
    ("transcription only", ({"type": "transcription"},), replace(FRESH, answers=False)),
    ("answers again", ({"type": "transcription"}, realtime()), FRESH),
    ("voice", (spoken(voice="anna"),), replace(FRESH, voice="anna")),
    ("voice by id", (spoken(voice={"id": "anna"}),), replace(FRESH, voice="anna")),
    ("hosted voice", (spoken(voice="marin"),), FRESH),
    ("voice cleared", (spoken(voice="anna"), spoken(voice=None)), FRESH),
    (
        "hosted models",
        (realtime(model="gpt-realtime"), heard(transcription={"model": "whisper-1"})),
        FRESH,
    ),
    (
        "language",
        (heard(transcription={"language": "de"}), heard(transcription={"prompt": "Lichter"})),
        replace(FRESH, language="de", prompt="Lichter"),
    ),
    (
        "languages and keywords",
        (heard(transcription={"languages": ["de", "en"], "keywords": ["Willow", "Mimi"]}),),
        replace(FRESH, languages=("de", "en"), keywords=("Willow", "Mimi")),
    ),
    (
        "languages and keywords cleared",
        (
            heard(transcription={"languages": ["de"], "keywords": ["Willow"]}),
            heard(transcription={"languages": None, "keywords": []}),
        ),
        FRESH,
    ),
    (
        "decoding",
        (
            decoding(task="translate", beam_size=5, temperature=0.2, no_speech_threshold=1),
            decoding(padding="bucket", prefix="<|de|>", beam_size=None),
        ),
        replace(
            FRESH,
            task="translate",
            temperature=0.2,
            no_speech_threshold=1,
            padding="bucket",
            prefix="<|de|>",
        ),
    ),
    (
        "decoding cleared",
        (decoding(task="translate"), realtime(earshot={"transcription": None})),
        FRESH,
    ),
    ("decoding stays", (decoding(beam_size=2), realtime(earshot={})), replace(FRESH, beam_size=2)),
    (
        "logprobs",
        (realtime(include=["item.input_audio_transcription.logprobs"]), realtime()),
        replace(FRESH, logprobs=True),
    ),
    (
        "no logprobs",
        (
            realtime(include=["item.input_audio_transcription.logprobs"]),
            realtime(include=["earshot.turn"]),
        ),
        FRESH,
    ),
    (
        "no transcripts",
        (heard(transcription={"language": "de"}), heard(transcription=None)),
        replace(FRESH, language="de", transcribes=False),
    ),
    ("push to talk", (heard(turn_detection=None),), replace(FRESH, turn_detection=None)),
    (
        "one detail",
        (vad(silence_duration_ms=450), vad(threshold=0.7)),
        replace(FRESH, turn_detection=TurnDetection(silence_ms=450, threshold=0.7)),
    ),
    (
        "another kind starts fresh",
        (
            vad(create_response=False),
            heard(turn_detection={"type": "semantic_vad", "eagerness": "high"}),
        ),
        replace(FRESH, turn_detection=TurnDetection("semantic_vad", eagerness="high")),
    ),
    (
        "our own wishes for answers",
        (
            realtime(earshot={"barge_in": "patient", "echo": "cancel", "temperature": 0.4}),
            realtime(earshot={"wake_word": "okay_nabu", "area": " Kitchen "}),
            realtime(earshot={"tools": ["HassTurnOn"], "echo": None}, max_output_tokens=200),
        ),
        replace(
            FRESH,
            barge_in="patient",
            wake_word="okay_nabu",
            area="Kitchen",
            answer_temperature=0.4,
            tools=("HassTurnOn",),
            max_output_tokens=200,
        ),
    ),
    (
        "an answer that nothing stops",
        (realtime(earshot={"barge_in": "off"}),),
        replace(FRESH, barge_in="off"),
    ),
    (
        "wishes taken back",
        (
            realtime(earshot={"tools": []}, max_output_tokens=5),
            realtime(earshot={"tools": None}, max_output_tokens="inf"),
        ),
        FRESH,
    ),
    (
        "truncation",
        (realtime(truncation=RATIO), realtime(instructions=None)),
        replace(FRESH, truncation=ContextTruncation(retention=0.5, max_tokens=2000)),
    ),
    (
        "no truncation",
        (realtime(truncation="disabled"),),
        replace(FRESH, truncation=ContextTruncation(is_allowed=False)),
    ),
    ("truncation cleared", (realtime(truncation="disabled"), realtime(truncation="auto")), FRESH),
    ("detail cleared", (vad(silence_duration_ms=450), vad(silence_duration_ms=None)), FRESH),
    (
        "hosted extras",
        (
            realtime(
                tools=[],
                tool_choice="auto",
                tracing="auto",
                truncation="auto",
                prompt=None,
            ),
            heard(transcription={"delay": "xhigh"}),
        ),
        FRESH,
    ),
    (
        "how the model is to work",
        (
            realtime(parallel_tool_calls=False, reasoning={"effort": "low"}),
            realtime(instructions=None, reasoning={}),
        ),
        replace(FRESH, parallel_tool_calls=False, reasoning_effort="low"),
    ),
    (
        "as the model likes",
        (
            realtime(parallel_tool_calls=False, reasoning={"effort": "low"}),
            realtime(parallel_tool_calls=None, reasoning=None),
        ),
        FRESH,
    ),
    (
        "thinking as it likes",
        (realtime(reasoning={"effort": "low"}), realtime(reasoning={"effort": None})),
        FRESH,
    ),
    (
        "less noise",
        (heard(noise_reduction={"type": "near_field"}), heard(turn_detection=None)),
        replace(FRESH, noise_reduction="near_field", turn_detection=None),
    ),
    (
        "less noise, from afar",
        (heard(noise_reduction={"type": "near_field"}), heard(noise_reduction=FAR)),
        replace(FRESH, noise_reduction="far_field"),
    ),
    (
        "less noise, as it was",
        (heard(noise_reduction=FAR), heard(noise_reduction={"strength": 1})),
        replace(FRESH, noise_reduction="far_field"),
    ),
    ("noise again", (heard(noise_reduction=FAR), heard(noise_reduction=None)), FRESH),
    (
        "less noise, transcription only",
        ({"type": "transcription", "audio": {"input": {"noise_reduction": FAR}}},),
        replace(FRESH, answers=False, noise_reduction="far_field"),
    ),
]


@pytest.mark.parametrize(
    ("updates", "settings"), [row[1:] for row in MERGES], ids=[row[0] for row in MERGES]
)
def test_updates_merge(updates: tuple[dict[str, Any], ...], settings: SessionSettings) -> None:
    assert after(*updates).settings == settings


@pytest.mark.parametrize("before", [None, {"type": "near_field"}, FAR])
def test_the_noise_reduction_in_effect_is_shown(before: dict[str, Any] | None) -> None:
    for update in (heard(noise_reduction=before), {"type": "transcription"}):
        shown = session_json(after(heard(noise_reduction=before), update), "sess_1")
        assert shown["audio"]["input"]["noise_reduction"] == before


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ({"type": "all"}, "invalid_value", ".type"),
        ({"type": "off"}, "invalid_value", ".type"),
        ({"type": 1}, "invalid_type", ".type"),
        ({"type": "far_field", "level": 2}, "unknown_parameter", ".level"),
        ({"type": "far_field", "strength": 0.5}, "unsupported_parameter", ".strength"),
        ({"strength": 1}, "missing_required_parameter", ".type"),
        ({"type": "far_field", "strength": "1"}, "invalid_type", ".strength"),
        ({}, "missing_required_parameter", ".type"),
        ("near_field", "invalid_type", ""),
        (True, "invalid_type", ""),
    ],
)
def test_invalid_noise_reduction_is_refused(sent: object, code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        after(heard(noise_reduction=sent))
    path = f"session.audio.input.noise_reduction{param}"
    assert (caught.value.code, caught.value.param) == (code, path)


def test_connectors_are_refused() -> None:
    """A self-hosted server has no connectors."""
    dropbox = {"type": "mcp", "server_label": "x", "connector_id": "connector_dropbox"}
    with pytest.raises(RequestError) as caught:
        after(realtime(tools=[dropbox]))
    wanted = ("unsupported_parameter", "session.tools[0].connector_id")
    assert (caught.value.code, caught.value.param) == wanted


@pytest.mark.parametrize(
    "sent", [heard(transcription={"delay": 3}), heard(transcription={"delay": "long"})]
)
def test_fields_without_effect_are_checked(sent: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        after(sent)
    assert caught.value.param == "session.audio.input.transcription.delay"


def test_the_voice_is_fixed_once_it_was_heard() -> None:
    silent = after(spoken(voice="anna"))
    check_unchanged(silent, after(spoken(voice="berta"), terms=silent))
    heard_once = replace(silent, has_spoken=True)
    for same in (spoken(voice="anna"), spoken(speed=1.5), realtime()):
        check_unchanged(heard_once, after(same, terms=heard_once))
    for other in (spoken(voice="berta"), spoken(voice=None), spoken(voice="marin")):
        with pytest.raises(Conflict) as caught:
            check_unchanged(heard_once, after(other, terms=heard_once))
        wanted = ("cannot_update_voice", "session.audio.output.voice")
        assert (caught.value.code, caught.value.param) == wanted


def test_model_and_conversation_are_fixed_once_connected() -> None:
    terms = SessionConfiguration(conversation_id="conv_1")
    check_unchanged(terms, after(realtime(model="default", instructions="x"), terms=terms))
    check_unchanged(terms, after(realtime(earshot={"conversation_id": "conv_1"}), terms=terms))
    with pytest.raises(Conflict) as caught:
        check_unchanged(terms, after(realtime(model="other"), terms=terms))
    assert (caught.value.code, caught.value.param) == ("cannot_update_model", "session.model")
    with pytest.raises(Conflict) as caught:
        check_unchanged(terms, after(realtime(earshot={"conversation_id": "c2"}), terms=terms))
    assert caught.value.code == "cannot_update_conversation"


@pytest.mark.parametrize(
    ("params", "request_"),
    [
        (None, ResponseRequest()),
        ({}, ResponseRequest()),
        ({"output_modalities": ["text"], "instructions": "x"}, ResponseRequest("text", "x")),
        ({"audio": {"output": {"voice": "anna"}}}, ResponseRequest(voice="anna")),
        (
            {"audio": {"output": {"voice": "alloy"}}, "conversation": "auto", "input": []},
            ResponseRequest(voice="default", input=()),
        ),
        (
            {"audio": {"output": {"format": {"type": "audio/pcma"}}}},
            ResponseRequest(audio_format="audio/pcma"),
        ),
        ({"earshot": {"temperature": 0.2}}, ResponseRequest(temperature=0.2)),
        (
            {"parallel_tool_calls": False, "reasoning": {"effort": "xhigh"}},
            ResponseRequest(parallel_tool_calls=False, reasoning_effort="xhigh"),
        ),
        ({"parallel_tool_calls": None, "reasoning": None}, ResponseRequest()),
        ({"reasoning": {"effort": None}}, ResponseRequest()),
    ],
)
def test_one_response_may_differ_from_the_session(
    params: dict[str, Any] | None, request_: ResponseRequest
) -> None:
    event = decode(json.dumps({"type": "response.create", "response": params}))
    assert isinstance(event, ResponseCreate)
    assert response_request(event.response) == request_


def test_a_response_can_have_its_own_input_tools_and_metadata() -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    request = asked(
        conversation="none",
        input=[{"type": "item_reference", "id": "a"}, {**message, "id": "b"}],
        metadata={"a": "b"},
        tools=[{"type": "function", "name": "f"}],
        tool_choice={"type": "function", "name": "f"},
        max_output_tokens="inf",
    )
    assert request == ResponseRequest(
        in_conversation=False,
        input=(ItemReference("a"), MessageItem("b", "user", (TextPart("x"),))),
        metadata={"a": "b"},
        client_tools=(ToolSpec("f", "", {"type": "object", "properties": {}}),),
        mcp_servers=(),
        tool_choice=NamedTool("f"),
        max_output_tokens="inf",
    )


DEEP = json.loads('{"a":' * 65 + "1" + "}" * 65)


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        ({"tools": [{**F, "parameters": DEEP}]}, "invalid_value", "response.tools[0].parameters"),
        ({"tools": [{**F, "parameters": DEEP["a"]}, F]}, "invalid_value", "response.tools[1].name"),
        ({"tools": [{"type": "mcp"}]}, "missing_required_parameter", None),
        ({"tools": [F, F]}, "invalid_value", "response.tools[1].name"),
        ({"tools": [{**F, "name": "a b"}]}, "invalid_value", "response.tools[0].name"),
        ({"tools": [{"type": "f"}]}, "invalid_value", "response.tools[0].type"),
        ({"tools": [{"type": "function", "function": F}]}, None, None),
        ({"tool_choice": "always"}, "invalid_value", "response.tool_choice"),
        ({"metadata": {"a": 1}}, "invalid_type", None),
        ({"metadata": {str(n): "" for n in range(17)}}, "invalid_value", "response.metadata"),
        (
            {"audio": {"output": {"format": {"type": "audio/opus"}}}},
            "invalid_value",
            "response.audio.output.format.type",
        ),
        ({"earshot": {"temperature": 2.1}}, "invalid_value", "response.earshot.temperature"),
        ({"temperature": 1}, "unknown_parameter", "response.temperature"),
        ({"conversation": "conv_1"}, "invalid_value", "response.conversation"),
        ({"reasoning": "low"}, "invalid_type", "response.reasoning"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "response.reasoning.effort"),
        (
            {"input": [user({"type": "input_audio", "audio": "AAAA"})]},
            "unsupported_parameter",
            "response.input[0].content[0].audio",
        ),
        ({"max_output_tokens": 0}, "invalid_value", "response.max_output_tokens"),
        (
            {"input": [user({"type": "input_image"})]},
            "missing_required_parameter",
            "response.input[0].content[0].image_url",
        ),
    ],
)
def test_an_invalid_response_is_refused_by_name(
    params: dict[str, Any], code: str | None, param: str | None
) -> None:
    with pytest.raises(RequestError) as caught:
        asked(**params)
    assert code in (None, caught.value.code)
    assert param in (None, caught.value.param)


SHOWN = [
    after(realtime(instructions="Be brief."), spoken(voice="anna", speed=1.25)),
    after(vad(idle_timeout_ms=5000)),
    after(vad(silence_duration_ms=450), heard(transcription={"language": "de", "prompt": "x"})),
    after(heard(turn_detection={"type": "semantic_vad"}, transcription=None)),
    after(heard(transcription={"languages": ["de", "en"], "keywords": ["Willow"]})),
    after(decoding(task="translate", temperature=0.5, padding="max")),
    after(heard(turn_detection=None), realtime(output_modalities=["text"])),
    after(heard(format={"type": "audio/pcmu"}), spoken(format={"type": "audio/pcma"})),
    after(spoken(format={"type": "audio/pcma"}), spoken(format=None)),
    after(realtime(truncation=RATIO)),
    after(realtime(parallel_tool_calls=False, reasoning={"effort": "minimal"})),
    after(realtime(truncation="disabled", tracing="auto")),
    after(realtime(tools=[F], tool_choice={"type": "function", "name": "f"})),
    after(
        {"type": "transcription"},
        {"type": "transcription", "audio": {"input": {"turn_detection": None}}},
    ),
]


@pytest.mark.parametrize("terms", SHOWN)
def test_the_shown_session_is_the_one_in_effect(terms: SessionConfiguration) -> None:
    """The shown session validates as the GA type, and if it is sent back it changes nothing."""
    shown = session_json(terms, "sess_1")
    SessionUpdatedEvent.model_validate(
        {"type": "session.updated", "event_id": "e", "session": shown}, strict=True
    )
    sendable = {key: value for key, value in shown.items() if key not in ("id", "object")}
    again = after(sendable, terms=replace(terms, settings=FRESH))
    assert again.settings == terms.settings
    assert (again.input_format, again.output_format) == (terms.input_format, terms.output_format)


@pytest.mark.parametrize("is_wanted", [False, True])
def test_sending_the_shown_empty_instructions_back_changes_nothing(is_wanted: bool) -> None:
    terms = after(realtime(instructions="")) if is_wanted else after(realtime())
    shown = session_json(terms, "sess_1")
    sendable = {key: value for key, value in shown.items() if key not in ("id", "object")}
    assert sendable["instructions"] == ""
    assert after(sendable, terms=terms).settings.is_uninstructed is is_wanted


def test_conversation_ids_are_shown_only_to_clients_that_use_earshot_fields() -> None:
    stock = SessionConfiguration(conversation_id="conv_1")
    assert "earshot" not in session_json(stock, "sess_1")
    knowing = after(realtime(earshot={}), terms=stock)
    assert session_json(knowing, "sess_1")["earshot"] == {"conversation_id": "conv_1"}
