"""Stored prompts by their id: in a session, in one response, and their errors."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.realtime import SessionUpdatedEvent

from core.errors import RequestError
from pipeline.shared.prompts import MAX_CHARS, PromptLibrary, StoredPrompt
from pipeline.shared.settings import ResponseRequest, SessionSettings
from signaling.realtime.client_secrets import ClientSecretStore
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.protocol.client_events import ResponseCreate
from signaling.realtime.protocol.decode import decode
from signaling.realtime.session.response import response_request
from signaling.realtime.session.settings import SessionConfiguration, session_json
from tests.pipeline.fakes import LoopClock
from tests.server.http.harness import error_of
from tests.signaling.realtime.client_events import after, expect, realtime, update
from tests.signaling.realtime.servers import Server, Setup, against

pytestmark = pytest.mark.live

PROMPTS = PromptLibrary(
    {
        "hotel": StoredPrompt(
            "Greet {{guest}} of room {{ room }}.", "2", {"1": "Greet {{guest}}."}
        ),
        "plain": StoredPrompt("Be plain."),
        "many": StoredPrompt("{{x}}" * 100),
    }
)
BEGUN = SessionConfiguration(SessionSettings(prompts=PROMPTS, instructions="Be kind."))
PLAIN, GUEST = {"id": "plain"}, {"guest": "Ada", "room": "7"}


@pytest.mark.parametrize(
    ("updates", "instructions"),
    [
        ([{"prompt": PLAIN}], "Be plain."),
        ([{"prompt": {"id": "hotel", "variables": GUEST}}], "Greet Ada of room 7."),
        (
            [{"prompt": {"id": "hotel", "version": "1", "variables": {"guest": "{{room}}"}}}],
            "Greet {{room}}.",
        ),
        (
            [{"prompt": {"id": "hotel", "version": None, "variables": GUEST}}],
            "Greet Ada of room 7.",
        ),
        (
            [
                {
                    "prompt": {
                        "id": "hotel",
                        "version": "1",
                        "variables": {"guest": {"type": "input_text", "text": "Bo"}},
                    }
                }
            ],
            "Greet Bo.",
        ),
        ([{"prompt": PLAIN, "instructions": "Own."}], "Own."),
        ([{"prompt": PLAIN}, {"instructions": "Own."}], "Own."),
        ([{"prompt": PLAIN}, {"tool_choice": "none"}], "Be plain."),
        ([{"prompt": PLAIN}, {"instructions": None}], "Be plain."),
        ([{"prompt": PLAIN}, {"prompt": None}], ""),
        ([{"prompt": PLAIN}, {"instructions": "Own."}, {"prompt": None}], "Own."),
        ([{"prompt": None}], "Be kind."),
    ],
)
def test_a_prompt_gives_the_instructions(updates: list[Any], instructions: str) -> None:
    terms = after(*(realtime(**one) for one in updates), terms=BEGUN)
    assert terms.settings.instructions == instructions


def test_the_prompt_is_shown_as_by_the_hosted_service() -> None:
    asked = {"id": "hotel", "variables": GUEST}
    shown = session_json(after(realtime(prompt=asked), terms=BEGUN), "sess_1")
    event = {"type": "session.updated", "event_id": "evt_1", "session": shown}
    prompt = SessionUpdatedEvent.model_validate(event).session.prompt  # type: ignore[union-attr]
    assert prompt is not None
    assert (prompt.id, prompt.variables, prompt.version) == ("hotel", GUEST, None)
    assert "prompt" not in session_json(BEGUN, "sess_1"), "who named none is shown none"
    assert "prompt" not in session_json(after(realtime(prompt=None), terms=BEGUN), "sess_1")


def with_value(value: Any) -> dict[str, Any]:
    return {"id": "hotel", "variables": {**GUEST, "guest": value}}


BAD: list[tuple[Any, str, str | None]] = [
    ({"id": "p"}, "prompt_not_found", "prompt.id"),
    ({"id": "hotel", "version": "3"}, "prompt_version_not_found", "prompt.version"),
    ({"id": "hotel"}, "prompt_variable_missing", "prompt.variables.guest"),
    (
        {"id": "hotel", "variables": {"guest": "x"}},
        "prompt_variable_missing",
        "prompt.variables.room",
    ),
    ({"id": "plain", "variables": {"x": "y"}}, "prompt_variable_unknown", "prompt.variables"),
    (with_value({"type": "input_image"}), "unsupported_parameter", "prompt.variables.guest"),
    (
        with_value({"type": "input_file", "file_id": "f"}),
        "unsupported_parameter",
        "prompt.variables.guest",
    ),
    (
        with_value({"type": "input_text"}),
        "missing_required_parameter",
        "prompt.variables[...].text",
    ),
    (with_value(7), "invalid_type", "prompt.variables[...]"),
    ({"id": 7}, "invalid_type", "prompt.id"),
    ({"id": ""}, "invalid_value", "prompt.id"),
    ({"id": "x" * 65}, "invalid_value", "prompt.id"),
    ({}, "missing_required_parameter", "prompt.id"),
    ({"id": "plain", "temperature": 1}, "unknown_parameter", "prompt.temperature"),
    ("plain", "invalid_type", "prompt"),
    (
        {"id": "many", "variables": {"x": "y" * (MAX_CHARS // 100 + 1)}},
        "prompt_too_long",
        "prompt.variables",
    ),
    ({"id": "hotel", "variables": {str(n): "" for n in range(101)}}, "invalid_value", None),
]


def requested(prompt: Any) -> ResponseRequest:
    event = decode(json.dumps({"type": "response.create", "response": {"prompt": prompt}}))
    assert isinstance(event, ResponseCreate)
    return response_request(event.response, PROMPTS)


@pytest.mark.parametrize(("prompt", "code", "param"), BAD)
def test_an_invalid_prompt_is_refused_by_name(prompt: Any, code: str, param: str | None) -> None:
    with pytest.raises(RequestError) as of_session:
        after(realtime(prompt=prompt), terms=BEGUN)
    with pytest.raises(RequestError) as of_response:
        requested(prompt)
    assert of_session.value.code == of_response.value.code == code
    if param is not None:
        assert of_session.value.param == f"session.{param}"
        assert of_response.value.param == f"response.{param}"


def test_the_model_gets_the_prompt_of_the_session_or_of_the_response() -> None:
    fresh = replace(RealtimeSettings(), initial_settings=lambda: SessionSettings(prompts=PROMPTS))

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default") as ws:
            shown = await update(ws, output_modalities=["text"], prompt=PLAIN)
            assert (shown["instructions"], shown["prompt"]["id"]) == ("Be plain.", "plain")
            for params in ({}, {"prompt": {"id": "hotel", "variables": GUEST}}):
                await ws.send_json({"type": "response.create", "response": params})
                await expect(ws, "response.done")
            given = [messages[0].text for messages in server.world.llm.asked]
            assert given == ["Be plain.", "Greet Ada of room 7."]
            await ws.send_json({"type": "response.create", "response": {"prompt": {"id": "p"}}})
            [refused] = await expect(ws, "error")
            assert refused["error"]["code"] == "prompt_not_found"
            assert "hotel, many, plain" in refused["error"]["message"]

    against(scene, Setup(settings=fresh))


def test_a_client_secret_with_an_unknown_prompt_is_not_found() -> None:

    async def scene(server: Server) -> None:
        body = {"session": realtime(prompt={"id": "p"})}
        async with server.client.post("/v1/realtime/client_secrets", json=body) as answer:
            assert (await error_of(answer))["code"] == "prompt_not_found"
            assert answer.status == 404

    against(scene, Setup(secrets=ClientSecretStore(LoopClock())))
