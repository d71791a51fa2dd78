"""The command line of llama-server, its options, and the check whether program and model are
there."""

from itertools import pairwise
from pathlib import Path

import pytest

from core.errors import ConfigError, EngineCrashed, EngineMissing
from engines.llm import llama_cpp
from engines.llm.llama_cpp.command_line import (
    check_options,
    command,
    completion_server,
    http_settings,
)
from engines.llm.llama_cpp.files import PROGRAM_PATH, find_model, find_program
from engines.runtime.external_server.installation import ServerInstallation, write_marker
from tests.engines.runtime.model_files.tiny_gguf import gguf_bytes, write_gguf
from tests.loop import run_virtual

KEY = "key-of-this-start"
PROGRAM = Path("/opt/llama-server")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "Tiny-GGUF" / "tiny.Q8_0.gguf").parent


def settings(model: Path, **more: object) -> llama_cpp.Settings:
    return llama_cpp.Settings(model=str(model), **more)  # type: ignore[arg-type]


def words_of(found: llama_cpp.Settings) -> list[str]:
    return command(found, PROGRAM, find_model(found), 8123)


def program_in(folder: Path) -> Path:
    program = folder / PROGRAM_PATH
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    return program


# How it is started


def test_each_parallel_answer_gets_the_whole_context(model: Path) -> None:
    words = words_of(settings(model, context_tokens=384, parallel=3, threads=2, gpu_layers=7))
    assert words[0] == str(PROGRAM)
    assert pairs(words) >= {
        ("--model", str(model / "tiny.Q8_0.gguf")),
        ("--alias", "tiny.Q8_0"),
        ("--host", "127.0.0.1"),
        ("--port", "8123"),
        ("--parallel", "3"),
        ("--ctx-size", "1152"),
        ("--threads", "2"),
        ("--gpu-layers", "7"),
    }
    assert {"--jinja", "--offline"} <= set(words)
    assert "--mmproj" not in words


def test_the_context_is_never_larger_than_the_model_s(model: Path) -> None:
    assert ("--ctx-size", "512") in pairs(words_of(settings(model, parallel=1)))
    assert ("--gpu-layers", "auto") in pairs(words_of(settings(model)))
    long = settings(model, context_tokens=100_000)
    assert completion_server(long, PROGRAM, find_model(long)).context_tokens == 512


def test_a_projector_in_the_model_folder_allows_images(model: Path) -> None:
    projector = write_gguf(model / "mmproj-tiny.gguf", architecture="clip")
    found = settings(model)
    assert ("--mmproj", str(projector)) in pairs(words_of(found))
    server = completion_server(found, PROGRAM, find_model(found))
    assert server.accepts_images
    assert server.client_settings("http://127.0.0.1:1", KEY).images


def test_the_key_is_not_in_the_command_line(model: Path) -> None:
    found = settings(model, request={"temperature": 0.5})
    server = completion_server(found, PROGRAM, find_model(found))
    assert server.variables(KEY) == {"LLAMA_API_KEY": KEY}
    assert KEY not in " ".join(server.command(1))
    asked = http_settings(found, find_model(found), "http://127.0.0.1:1", KEY)
    assert (asked.api_key, asked.temperature, asked.model) == (KEY, 0.5, "tiny.Q8_0")
    assert not asked.images


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"extra_args": ("--api-key", "x")}, "--api-key is set by the engine"),
        ({"extra_args": ("--port=1",)}, "--port is set by the engine"),
        ({"extra_args": ("-c", "4096")}, "-c is set by the engine"),
        ({"request": {"images": True}}, "request: images is set by the engine"),
        ({"request": {"temprature": 1}}, "llama_cpp.request: unknown key 'temprature'"),
    ],
)
def test_options_that_the_engine_sets_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_options(settings(Path("tiny.gguf"), **wrong))


# Whether program and model are there


def test_an_installed_program_has_precedence_over_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "tools" / "bin"))
    found = settings(model, installation=str(tmp_path / "installed"))
    with pytest.raises(EngineMissing, match="earshot engines install llama_cpp"):
        find_program(found)
    on_path = program_in(tmp_path / "tools")
    assert find_program(found) == on_path
    built = program_in(tmp_path / "installed")
    assert find_program(found) == on_path  # without its marker, the installation broke off
    installation = ServerInstallation("cpu", {"llama-cpp-python": "0.3.36"}, "3.11.7")
    write_marker(tmp_path / "installed", installation)
    assert find_program(found) == built
    named = settings(model, program=str(tmp_path / "nowhere"))
    with pytest.raises(EngineMissing, match="nowhere is not an executable file"):
        find_program(named)


@pytest.mark.parametrize(
    ("files", "more", "says"),
    [
        ({}, {}, "it holds: none"),
        ({"a.gguf": gguf_bytes(), "b.gguf": gguf_bytes()}, {}, r"it holds: a\.gguf, b\.gguf"),
        ({"a.gguf": gguf_bytes()[:-9]}, {}, "9 bytes of the tensor 'output.weight' missing"),
        ({"a.gguf": b"a page"}, {}, "it does not begin with GGUF"),
        ({"a.gguf": gguf_bytes(architecture="clip")}, {}, "a vision projector"),
        ({"a.gguf": gguf_bytes(), "mmproj.gguf": gguf_bytes()}, {}, "is not a vision projector"),
        ({"a.gguf": gguf_bytes()}, {"vision_projector": "/nowhere.gguf"}, "there is no /nowhere"),
    ],
)
def test_the_error_names_an_unusable_model(
    tmp_path: Path, files: dict[str, bytes], more: dict[str, object], says: str
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(EngineMissing, match=says):
        find_model(settings(tmp_path, **more))


def test_the_error_names_a_missing_model(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.gguf"
    with pytest.raises(EngineMissing, match=f"there is no {nowhere}; `earshot models list`"):
        find_model(settings(nowhere))


def test_an_engine_that_was_not_started_reports_that(tmp_path: Path, model: Path) -> None:
    program = program_in(tmp_path / "tools")
    engine = llama_cpp.create(settings(model, program=str(program)))
    assert (engine.name, engine.max_concurrency, engine.context_tokens) == ("llama_cpp", 4, 512)

    async def scenario() -> None:
        with pytest.raises(EngineCrashed, match="has not been started"):
            await anext(engine.reply([], (), language="en"))

    run_virtual(scenario())


def pairs(words: list[str]) -> set[tuple[str, str]]:
    return set(pairwise(words))
