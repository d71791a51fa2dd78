"""The C client compiles everywhere, agrees with the vectors of the Python codec, never breaks."""

import json
import os
import re
from itertools import groupby
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from tests.firmware_protocol.c_programs import (
    LIBRARY,
    LIBRARY_WARNINGS,
    C,
    compile_c,
    link_with_library,
)
from tests.shared import ROOT

pytestmark = pytest.mark.live

VECTORS = ROOT / "firmware_protocol" / "vectors" / "xiaozhi"
CASES = json.loads((VECTORS / "cases.json").read_text(encoding="utf-8"))
MODES = ("auto", "manual", "realtime")
EXAMPLE_LINES = 45
"A newcomer reads the whole device without turning the page."

NOT_ANNOUNCED = ("glyph_push", "text_font")
"What the C client never asks for, so it writes no hello with it."


class Answers:
    """The answers of the vector program to each line; all lines are sent in one run."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def to(self, lines: list[str]) -> list[str]:
        done = run(
            [self._program],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = done.stdout.splitlines()
        assert len(answers) == len(lines)
        return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    target = tmp_path_factory.mktemp("c") / "vectors"
    return Answers(link_with_library("gcc", target, "tests/vectors.c"))


def _hex(data: bytes) -> str:
    return data.hex() or "-"


def _text(case: dict[str, Any]) -> bytes:
    if parts := case.get("text_parts"):
        text = parts["before"] + parts["repeat"] * parts["times"] + parts["after"]
    else:
        text = case["text"]
    return str(text).encode()


def _messages(sender: str) -> list[dict[str, Any]]:
    return [case for case in CASES["messages"] if case["sender"] == sender]


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_library_compiles_without_a_warning(cc: str, tmp_path: Path) -> None:
    target = tmp_path / "library.o"
    compile_c(cc, *LIBRARY_WARNINGS, "-O2", "-r", "-nostdlib", *LIBRARY, "-o", target)


def test_every_header_compiles_alone(tmp_path: Path) -> None:
    alone = []
    for index, header in enumerate(sorted((C / "include").rglob("*.h"))):
        alone.append(tmp_path / f"alone{index}.c")
        include = f'#include "{header.relative_to(C / "include")}"\n'
        alone[-1].write_text(f"{include}int alone{index};\n", encoding="utf-8")
    compile_c("gcc", *LIBRARY_WARNINGS, "-fsyntax-only", *alone)


@pytest.mark.parametrize("target", ["riscv32-unknown-elf", "thumbv7m-none-eabi"])
def test_library_compiles_for_chips_without_an_operating_system(target: str) -> None:
    """32 bits and only the compiler's own headers, as on an ESP32-C3 or a Cortex-M."""
    bare = (f"--target={target}", "-ffreestanding", "-nostdlibinc", "-Itests/freestanding")
    compile_c("clang", *bare, *LIBRARY_WARNINGS, "-fsyntax-only", *LIBRARY)


def test_library_needs_only_the_standard_library_and_no_heap() -> None:
    sources = [*LIBRARY, *(C / "src").glob("*.h"), *(C / "include").rglob("*.h")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    included = set(re.findall(r"#include <(.+)>", text))
    assert included <= {"stdbool.h", "stddef.h", "stdint.h", "string.h"}
    assert not re.findall(r"\b(?:malloc|calloc|realloc|free|alloca|printf|time)\(", text)


def test_the_c_scenarios_pass(tmp_path: Path) -> None:
    program = link_with_library(
        "gcc", tmp_path / "scenarios", *sorted((C / "tests").glob("scen*.c"))
    )
    done = run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_example_of_the_readme_holds_a_conversation(tmp_path: Path) -> None:
    readme = (C / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```c\n(.+?)```", readme, re.DOTALL)
    (tmp_path / "example.c").write_text(example, encoding="utf-8")
    program = link_with_library(
        "gcc", tmp_path / "device", tmp_path / "example.c", "tests/readme_device.c"
    )
    done = run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = ["you: lamp on", "answer: Done.", "speaker: abc", "packets spoken: 4"]
    assert done.stdout.splitlines() == said
    assert example.count("\n") <= EXAMPLE_LINES


def test_frames_agree_with_the_vectors(answers: Answers) -> None:
    cases, lines, expected = CASES["frames"], [], []
    for case in cases:
        inline = case.get("hex")
        data = (
            bytes.fromhex(inline) if inline is not None else (VECTORS / case["file"]).read_bytes()
        )
        lines.append(f"frame {case['version']} {_hex(data)}")
        if "error" in case:
            expected.append(f"error {case['error']}")
            continue
        value = case["expect"]
        header = (0, 0, 16, 4)[case["version"]]
        payload = data[header:].hex()
        assert value.get("payload_hex", payload) == payload, case["name"]
        kind = ("audio", "json").index(value["kind"])
        expected.append(f"ok {kind} {value.get('timestamp_ms', 0)} {payload}")
    names = [case["name"] for case in cases]
    assert dict(zip(names, answers.to(lines), strict=True)) == dict(
        zip(names, expected, strict=True)
    )


def _as_read(case: dict[str, Any]) -> dict[str, Any] | str:
    """Returns what the C client reads from a server's message."""
    if "error" in case:
        return f"error {case['error']}"
    message = case["expect"]
    read = {key: message[key] for key in ("session_id", "emotion", "status") if key in message}
    if case.get("ignored"):
        return {"kind": "ignored"} | {k: v for k, v in read.items() if k == "session_id"}
    kind = message["type"]
    if kind == "tts":
        kind = f"tts {message['state']}"
    elif kind == "system":
        kind = message["command"]
    elif kind == "hello":
        audio = message.get("audio_params", {})
        read["sample_rate"] = audio.get("sample_rate", 24000)
        read["frame_duration"] = audio.get("frame_duration", 60)
    for key in ("payload", "partial"):
        if key in message:
            read[key] = message[key]
    if "text" in message or kind == "alert":
        read["text"] = message["message" if kind == "alert" else "text"]
    if timing := message.get("timing"):
        names = ("response_latency_ms", "transcript_ms", "first_text_ms", "first_audio_ms")
        read["timing"] = [int(timing.get(name, -1) + 0.5) for name in names]
    return {"kind": kind, **read}


def test_server_messages_agree_with_the_vectors(answers: Answers) -> None:
    cases = _messages("server")
    said = answers.to([f"read {_hex(_text(case))}" for case in cases])
    got = [text if text.startswith("error ") else json.loads(text) for text in said]
    names = [case["name"] for case in cases]
    wanted = map(_as_read, cases)
    assert dict(zip(names, got, strict=True)) == dict(zip(names, wanted, strict=True))


def _as_build(message: dict[str, Any]) -> str:
    """Returns the line that makes the program write this message of a device."""
    kind, argument = message["type"], b"\0"
    if kind == "hello":
        has = message["features"]
        flags = [has.get(name, False) for name in ("mcp", "aec", "partial", "timing")]
        argument = bytes([message["version"], *flags])
    elif kind == "listen":
        kind = f"listen_{message['state']}"
        argument = message.get("text", "").encode()
        if "mode" in message:
            argument = bytes([MODES.index(message["mode"])])
    elif kind == "abort":
        argument = bytes(["reason" in message])
    elif kind == "mcp":
        argument = json.dumps(message["payload"]).encode()
    return f"build {kind} {_hex(message.get('session_id', '').encode())} {_hex(argument)}"


def test_device_messages_agree_with_the_vectors(answers: Answers) -> None:
    cases = [
        case
        for case in _messages("device")
        if "expect" in case and not case.get("ignored")  # what no device of ours would write
        if not any(name in json.dumps(case["expect"]) for name in NOT_ANNOUNCED)
    ]
    assert len(cases) >= 12
    written = answers.to([_as_build(case["expect"]) for case in cases])
    for case, text in zip(cases, written, strict=True):
        assert json.loads(text) == case["expect"], case["name"]


def test_tools_answer_like_the_stock_firmware(answers: Answers) -> None:
    payloads = {
        case["name"]: case["expect"]["payload"]
        for case in _messages("server")
        if case["name"].startswith("mcp_") and "expect" in case
    }
    call = payloads["mcp_tools_call"]
    unknown = {**call, "id": 4, "params": {"name": "self.foo"}}
    wrong = {**call, "params": {**call["params"], "arguments": {"volume": "loud"}}}
    odd = {**call, "params": {**call["params"], "arguments": [30]}}
    users = {
        **payloads["mcp_tools_list"],
        "params": {"withUserTools": True, "cursor": "self.reboot"},
    }
    asked = [*payloads.values(), unknown, wrong, odd, users, {**call, "method": "ping\u4f60"}]
    said = answers.to([f"mcp 5000 {_hex(json.dumps(payload).encode())}" for payload in asked])
    started, listed, done, refused, misused, odd_done, for_users, not_there = map(json.loads, said)
    expected = {
        case["name"]: case["expect"]["payload"]
        for case in _messages("device")
        if "expect" in case and case["expect"]["type"] == "mcp"
    }
    assert done == expected["mcp_result"]
    said_by_firmware = expected["mcp_error_without_code"]
    assert refused == said_by_firmware | {"error": {"code": -32602, **said_by_firmware["error"]}}
    assert started["result"]["serverInfo"] == {"name": 'bo"ard', "version": "1.0"}
    (tool,) = listed["result"]["tools"]
    assert tool["inputSchema"]["properties"] == {"volume": {"type": "integer"}}
    assert misused["error"] == odd_done["error"]
    assert odd_done["error"] == {"code": -32000, "message": "volume must be 0 to 100"}
    assert [tool["name"] for tool in for_users["result"]["tools"]] == ["self.reboot"]
    assert not_there["error"] == {
        "code": -32601,
        "message": "Method not implemented: ping\u4f60",
    }


def test_tools_never_write_past_their_buffer(answers: Answers) -> None:
    (case,) = [case for case in _messages("server") if case["name"] == "mcp_tools_call"]
    request = _hex(json.dumps(case["expect"]["payload"]).encode())
    said = answers.to([f"mcp {room} {request}" for room in range(120)])
    none, problem, result = [text for text, _ in groupby(said)]  # the more room, the more is said
    assert none == "full"
    assert json.loads(problem)["error"] == {"code": -32603, "message": "The result is too large"}
    assert json.loads(result)["result"]["isError"] is False


def _write_corpus(folder: Path) -> None:
    """Writes seeds for the fuzzer. The first byte says what the rest is (tests/fuzz.c)."""
    folder.mkdir()
    for index, case in enumerate(CASES["messages"]):
        text = _text(case)
        if len(text) > 3000:
            continue
        (folder / f"json_{index}").write_bytes(bytes([3]) + text)
        frame = bytes([1]) + len(text).to_bytes(2, "big") + text
        (folder / f"talk_{index}").write_bytes(bytes([8]) + frame)
    for index, case in enumerate(CASES["frames"]):
        if data := bytes.fromhex(case.get("hex", "")):
            (folder / f"frame_{index}").write_bytes(bytes([case["version"] - 1]) + data)


def _fuzz(tmp_path: Path, runs: int, timeout_s: float) -> None:
    program = link_with_library("clang", tmp_path / "fuzz", "-fsanitize=fuzzer", "tests/fuzz.c")
    _write_corpus(tmp_path / "seeds")
    (tmp_path / "found").mkdir()
    limits = ["-max_len=3000", "-timeout=5", "-rss_limit_mb=1000"]
    # The fuzzer reads its peak memory from the kernel, and a program inherits that of the process
    # which started it, here a large pytest. `timeout` starts it from a small one.
    done = run(
        ["timeout", str(timeout_s), program, f"-runs={runs}", "-seed=7", *limits, "found", "seeds"],
        cwd=tmp_path,
        env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=32"},  # 256 MB by default
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"Done {runs} runs" in done.stderr


@pytest.mark.real
def test_random_bytes_do_no_harm(tmp_path: Path) -> None:
    _fuzz(tmp_path, 10_000, timeout_s=120)


@pytest.mark.soak
def test_a_million_random_inputs_do_no_harm(tmp_path: Path) -> None:
    _fuzz(tmp_path, 1_000_000, timeout_s=1800)
