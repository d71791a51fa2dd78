"""`GET /api/chatbot` and `GET /api/chatbot/tts`: questions, wrong requests, lost clients."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.conversation.items import MessageItem
from engines.base import LlmOptions
from media.files.decode import decode_file
from tests.devices.slow_tools import hurry
from tests.devices.willow.wis.servers import HeldLlm, Scene, Server, against
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live

BOTH = pytest.mark.parametrize("path", ["/api/chatbot", "/api/chatbot/tts"])


def test_an_answer_has_the_form_of_wis() -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/chatbot", params={"text": "one  two"})
        assert (response.status, response.content_type) == (200, "application/json")
        assert response.headers["Cache-Control"] == "no-store"
        assert await response.json() == {"response": "you said one two."}

    against(act)


def test_a_question_may_run_a_tool() -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/chatbot?text=four")
        assert await response.json() == {"response": "you said it is 4."}

    against(act)


@pytest.mark.parametrize(
    ("format_", "content_type"), [("", "audio/flac"), ("WAV", "audio/wav"), ("mp3", "audio/mpeg")]
)
def test_an_answer_is_spoken(format_: str, content_type: str) -> None:
    async def act(server: Server) -> None:
        query = {"text": "one", "format": format_, "speaker": "CLB"}
        response = await server.client.get("/api/chatbot/tts", params=query)
        assert (response.status, response.content_type) == (200, content_type)
        found = decode_file(await response.read())
        assert 900 * 16 <= len(found) <= 1100 * 16
        assert np.abs(found).max() > 5000

    against(act)


def test_a_slow_tool_is_bridged_in_spoken_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)

    async def act(server: Server) -> None:
        written = await server.client.get("/api/chatbot?text=four")
        assert await written.json() == {"response": "you said it is 4."}
        spoken = await server.client.get("/api/chatbot/tts?text=four&format=WAV")
        assert len(decode_file(await spoken.read())) > 1900 * 16, "two clauses, a second each"

    against(act)


def test_the_voice_begins_before_the_answer_is_complete() -> None:
    llm = HeldLlm()

    async def act(server: Server) -> None:
        response = await server.client.get("/api/chatbot/tts?text=a&format=WAV")
        first = await response.content.readany()
        assert first.startswith(b"RIFF")
        assert not llm.goes_on.is_set()
        llm.goes_on.set()
        assert len(first + await response.read()) > 2 * 1000 * 16 * 2

    against(act, Scene(llm=llm))


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, ("en", {})),
        ({"language": "de-DE"}, ("de", {})),
        ({"text": "Licht an"}, ("de", {})),
        (
            {"temperature": "0.2", "max_new_tokens": "512"},
            ("en", {"temperature": 0.2, "max_output_tokens": 512}),
        ),
        (
            {"top_p": ".95", "repetition_penalty": "1.15", "nobody": "knows"},
            ("en", {"top_p": 0.95, "repetition_penalty": 1.15}),
        ),
        ({"model": "echo"}, ("en", {})),
    ],
)
@BOTH
def test_options_reach_the_model(
    path: str, query: Mapping[str, str], asked: tuple[str, dict[str, Any]]
) -> None:
    llm = HeldLlm()
    llm.goes_on.set()

    async def act(server: Server) -> None:
        response = await server.client.get(path, params={"text": "one", **query})
        assert response.status == 200, await response.text()
        await response.read()
        language, wished = asked
        assert llm.languages_asked[0] == language
        assert llm.options == [LlmOptions(default_temperature=0.7, **wished)], "0.7 is WIS's"

    against(act, Scene(llm=llm))


@pytest.mark.parametrize(
    ("query", "status", "param", "says"),
    [
        ({"text": ""}, 400, "text", "the text to speak"),
        ({"text": "x" * 4097}, 400, "text", "the limit is 4096"),
        ({"max_new_tokens": "0"}, 400, "max_new_tokens", "1 to 16384"),
        ({"max_new_tokens": "9" * 100}, 400, "max_new_tokens", "1 to 16384"),
        ({"temperature": "2.1"}, 400, "temperature", "0 to 2"),
        ({"temperature": "nan"}, 400, "temperature", "0 to 2"),
        ({"top_p": "0"}, 400, "top_p", "0.01 to 1"),
        ({"repetition_penalty": "warm"}, 400, "repetition_penalty", "0.5 to 2"),
        ({"model": "parrot"}, 404, "model", "default, echo"),
    ],
)
@BOTH
def test_a_wrong_request_is_named(
    path: str, query: Mapping[str, str], status: int, param: str, says: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get(path, params={"text": "one", **query})
        error = await error_of(response)
        assert (response.status, error["param"]) == (status, param)
        assert says in error["message"]
        assert server.scene.llm.asked == []

    against(act)


@pytest.mark.parametrize(
    ("query", "param", "says"),
    [
        ({"format": "PCM"}, "format", "WAV, FLAC"),
        ({"speed": "9"}, "speed", "0.25 to 4"),
        ({"language": "xx"}, "language", "de, en"),
    ],
)
def test_a_question_without_a_voice_for_the_answer_is_refused(
    query: Mapping[str, str], param: str, says: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/chatbot/tts", params={"text": "one", **query})
        error = await error_of(response)
        assert (response.status, error["param"]) == (400, param)
        assert says in error["message"]
        assert server.scene.llm.asked == []

    against(act)


@BOTH
def test_a_failed_model_gives_an_error_response(path: str) -> None:
    async def act(server: Server) -> None:
        server.scene.llm.fails = True
        response = await server.client.get(path, params={"text": "one"})
        assert (response.status, (await error_of(response))["code"]) == (502, "engine_failed")

    against(act)


@BOTH
def test_a_client_that_leaves_cancels_the_model(path: str) -> None:
    llm = HeldLlm()

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(_asked(server, path))
            await llm.is_asked.wait()
            asking.cancel()
        await llm.is_closed.wait()

    against(act, Scene(llm=llm))


async def _asked(server: Server, path: str) -> None:
    async with server.client.get(path, params={"text": "one"}) as response:
        await response.read()


def test_a_conversation_is_continued() -> None:
    async def act(server: Server) -> None:
        for text in ("one", "two"):
            query = {"text": text, "conversation_id": "kitchen"}
            await (await server.client.get("/api/chatbot", params=query)).json()
        await (await server.client.get("/api/chatbot?text=three")).json()
        assert [len(messages) for messages in server.scene.llm.asked] == [1, 3, 1]
        items = server.scene.conversations.get("kitchen").history.items
        assert [item.text for item in items if isinstance(item, MessageItem)][0::2] == [
            "one",
            "two",
        ]

    against(act)


def test_a_conversation_takes_one_question_at_a_time() -> None:
    llm = HeldLlm()

    async def act(server: Server) -> None:
        query = {"text": "one", "conversation_id": "kitchen"}
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(server.client.get("/api/chatbot", params=query))
            await llm.is_asked.wait()
            second = await server.client.get("/api/chatbot", params=query)
            assert second.status == 409
            llm.goes_on.set()
        assert first.result().status == 200

    against(act, Scene(llm=llm))


def test_a_question_beyond_the_limit_gets_retry_after() -> None:
    llm = HeldLlm()

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.client.get("/api/chatbot?text=one"))
            await llm.is_asked.wait()
            refused = await server.client.get("/api/chatbot?text=two")
            assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
            llm.goes_on.set()

    against(act, Scene(llm=llm, max_questions=1))


@BOTH
def test_a_head_request_runs_no_model(path: str) -> None:
    async def act(server: Server) -> None:
        head = await server.client.head(path, params={"text": "four"})
        assert head.status == 200
        assert (await server.client.head(path)).status == 400
        assert server.scene.llm.asked == []

    against(act)


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        BROWSER,
        {**BROWSER, "Referer": "http://elsewhere.example/page"},
        {**BROWSER, "Referer": "http://[broken"},
        {**BROWSER, "Authorization": "Basic YTpi"},
    ],
)
@pytest.mark.parametrize("path", ["/api/chatbot", "/api/chatbot/tts", "/api/ws/chatbot"])
def test_a_subresource_of_another_origin_runs_no_command(
    path: str, headers: Mapping[str, str]
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get(path, params={"text": "four"}, headers=headers)
        assert (response.status, (await error_of(response))["code"]) == (403, "forbidden_origin")
        assert server.scene.llm.asked == []

    against(act)


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": "Willow/0.4"},
        {**BROWSER, "Sec-Fetch-Site": "same-origin"},
        {**BROWSER, "Sec-Fetch-Site": "none"},
        {**BROWSER, "Authorization": "Bearer right-key-0123456789"},
    ],
)
def test_a_navigation_of_the_user_is_answered(headers: Mapping[str, str]) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get("/api/chatbot?text=one", headers=headers)
        assert response.status == 200
        own = {**BROWSER, "Referer": str(response.url)}
        assert (await server.client.get("/api/chatbot?text=one", headers=own)).status == 200

    against(act)
