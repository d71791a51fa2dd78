"""The engine `transformers` without its library: tool calls in text, settings, ids."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, EngineMissing
from engines.base import ConcurrencyLimitedLlm, Message, ToolCall
from engines.llm import transformers
from engines.llm.chat_messages import chat_messages
from engines.llm.transformers.engine import TransformersLlm, with_short_ids
from engines.llm.transformers.settings import Settings, read_context
from engines.llm.transformers.tool_call_parser import InvalidToolCall, ToolCallParser
from engines.registry import load, worker_profile
from tests.engines.runtime.model_files.tiny_gguf import write_gguf

ON = '{"name": "light", "arguments": {"on": 1}}'

WRITTEN: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("Hello.", "Hello.", []),
    ("", "", []),
    (f"One moment.<tool_call>{ON}</tool_call>", "One moment.", [("light", {"on": 1})]),
    (
        f"<tool_call>\n{ON}\n</tool_call>\n<tool_call>{ON}</tool_call>",
        "\n",
        [("light", {"on": 1}), ("light", {"on": 1})],
    ),
    (f"<tool_call>{ON}", "", [("light", {"on": 1})]),
    ("2 < 3 <tool box", "2 < 3 <tool box", []),
    ('{"name": "light", "parameters": {"on": 1}}', "", [("light", {"on": 1})]),
    (f"[{ON}, {ON}]", "", [("light", {"on": 1}), ("light", {"on": 1})]),
    ('{"name": "time"}', "", [("time", {})]),
    ("{a set}", "{a set}", []),
    ("[1, 2]", "[1, 2]", []),
]


@pytest.mark.parametrize(("written", "said", "calls"), WRITTEN)
def test_calls_are_extracted_from_text_in_any_split(
    written: str, said: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    for cut in range(len(written) + 1):
        text = ToolCallParser()
        spoken = text.push(written[:cut]) + text.push(written[cut:])
        rest, found = text.end()
        assert spoken + rest == said
        assert [(call.name, call.arguments) for call in found] == calls


@pytest.mark.parametrize("inside", ["", "{", '{"nam": "x"}', '{"name": "x", "arguments": [1]}'])
def test_invalid_calls_are_refused(inside: str) -> None:
    with pytest.raises(InvalidToolCall):
        ToolCallParser().push(f"<tool_call>{inside}</tool_call>")


def test_text_is_passed_on_as_it_comes() -> None:
    text = ToolCallParser()
    assert [text.push("Hel"), text.push("lo <"), text.push("3")] == ["Hel", "lo ", "<3"]


def test_ids_are_short_and_consistent() -> None:
    calls = tuple(ToolCall(f"call_{n:030}", "light", {}) for n in range(2))
    messages = [
        Message("user", "a"),
        Message("assistant", tool_calls=calls),
        *(Message("tool", "{}", call_id=call.call_id) for call in calls),
    ]
    chat = with_short_ids(chat_messages(messages))
    assert [call["id"] for call in chat[1]["tool_calls"]] == ["call00000", "call00001"]
    assert [one["tool_call_id"] for one in chat[2:]] == ["call00000", "call00001"]


@pytest.mark.parametrize(
    ("config", "limit", "tokens"),
    [
        ({"max_position_embeddings": 4096}, None, 4096),
        ({"max_position_embeddings": 4096}, 512, 512),
        ({"max_position_embeddings": 256}, 512, 256),
        ({"text_config": {"max_position_embeddings": 1024}}, None, 1024),
        ({}, None, 2048),
    ],
)
def test_the_context_is_the_models_or_a_smaller_limit(
    tmp_path: Path, config: dict[str, Any], limit: int | None, tokens: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_context(Settings(path=str(tmp_path), context_tokens=limit)) == tokens


@pytest.mark.parametrize("content", [None, "{"])
def test_the_error_names_a_folder_without_a_model(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(EngineMissing, match=str(tmp_path)):
        read_context(Settings(path=str(tmp_path)))


def test_the_number_of_simultaneous_answers_is_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    llm = TransformersLlm(Settings(path=str(tmp_path), at_once=3))
    assert isinstance(llm, ConcurrencyLimitedLlm)
    assert llm.max_concurrency == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "path"), ({"path": ""}, "path"), ({"path": "x", "device": "gpu"}, "device")],
)
def test_the_error_names_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("llm", "transformers", options)


def test_the_engine_runs_in_a_worker_with_its_own_limits() -> None:
    options = {"path": "x", "load_timeout_s": 5, "token_timeout_s": 3}
    profile = worker_profile("llm", "transformers", options)
    assert profile is not None
    assert profile.environment["HF_HUB_OFFLINE"] == "1"
    limits_s = (profile.load_timeout_s, profile.first_chunk_timeout_s, profile.chunk_timeout_s)
    assert limits_s == (5, 60, 3)


def test_the_error_says_how_to_install_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.llm.transformers.find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match="earshot extras add torch"):
        load("llm", "transformers", {"path": "x"})


@pytest.mark.parametrize("library", transformers.GGUF_LIBRARIES)
def test_the_error_names_what_a_gguf_file_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    monkeypatch.setattr(transformers, "find_spec", lambda name: None if name == library else name)
    file = write_gguf(tmp_path / "tiny.gguf")
    why = r"needs the packages gguf and accelerate; `earshot extras add torch`"
    with pytest.raises(EngineMissing, match=why):
        transformers.create(Settings(path=str(file)))
