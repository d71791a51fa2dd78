"""The C example program talks with a real server by voice."""

import wave
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from subprocess import CompletedProcess, run
from threading import Thread

import numpy as np
import pytest

from core.audio import Pcm
from tests.conftest import require
from tests.devices.willow.wis.requests import heard
from tests.devices.willow.wis.uploads import wav
from tests.firmware_protocol.c_programs import C, compiler, link_with_library
from tests.server.process import run as run_earshot
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.live

DEVICE = "02:00:00:00:00:01"
ANSWER_HZ = 24_000
AUDIBLE = 500
"Of 32767: the loudest sample of any speech is far above it, that of silence is not."


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("c") / "host_client"
    probe = [compiler("gcc"), "-E", "-include", "opus/opus.h", "-x", "c", "/dev/null"]
    require(run(probe, capture_output=True, check=False).returncode == 0, "needs libopus-dev")
    examples = sorted((C / "examples").glob("*.c"))
    return link_with_library("gcc", target, "-Wconversion", *examples, "-lopus")


def _talk(program: Path, check_in: str, answer: Path, *questions: Path) -> CompletedProcess[str]:
    command = [str(program), check_in, DEVICE, str(answer), *map(str, questions)]
    return run(command, capture_output=True, text=True, check=False, timeout=90)


def _answers(path: Path) -> list[Pcm]:
    """Splits the recording at the pauses of half a second that the program puts between answers."""
    with wave.open(str(path), "rb") as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (ANSWER_HZ, 1, 2)
        sound = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    heard_at = np.flatnonzero(sound)
    pauses = np.flatnonzero(np.diff(heard_at) >= ANSWER_HZ // 2)
    starts = [heard_at[0], *(heard_at[pauses + 1])]
    ends = [*heard_at[pauses], heard_at[-1]]
    return [sound[start : end + 1] for start, end in zip(starts, ends, strict=True)]


@pytest.mark.real
def test_the_example_holds_a_spoken_conversation(program: Path, tmp_path: Path) -> None:
    questions = [tmp_path / "lamp.wav", tmp_path / "time.wav"]
    for path, text in zip(questions, ("turn on the kitchen light", "what time is it"), strict=True):
        path.write_bytes(wav(say(text, lead_ms=300, tail_ms=300)))
    answer = tmp_path / "answer.wav"
    with serving(tmp_path) as server:
        done = _talk(program, f"{server.url}/xiaozhi/ota/", answer, *questions)
        assert done.returncode == 0, done.stdout + done.stderr
        first, second = _answers(answer)
        understood = heard(server.url, wav(first, ANSWER_HZ))
        assert server.stop() == 0
    assert not done.stderr
    said = [line.partition(": ") for line in done.stdout.splitlines()]
    transcripts = [text.lower() for kind, _, text in said if kind == "transcript"]
    assert len(transcripts) == 2
    assert transcripts[0].startswith("turn on the kitchen l")
    assert "what time is it" in transcripts[1]
    partials = [text.lower() for kind, _, text in said if kind == "partial"]
    # The fixture's small model hears the rest right only at the end, and "turn on the fan" before.
    assert partials[0].split()[:3] == ["turn", "on", "the"]
    answers = [text for kind, _, text in said if kind == "answer"]
    assert answers[0] == "Turned on the kitchen lights."
    assert answers[1].startswith("It is ")
    kinds = {kind for kind, _, _ in said}
    assert {"connected", "partial", "latency"} <= kinds  # the last two are our own features
    assert len(second) > ANSWER_HZ / 2
    assert np.abs(second.astype(np.int32)).max() > AUDIBLE
    assert "kitchen" in understood
    assert not [line for line in server.said if "Traceback" in line or "kitchen" in line]


@pytest.mark.real
def test_the_tool_of_the_example_is_called(program: Path, tmp_path: Path) -> None:
    question, answer = tmp_path / "time.wav", tmp_path / "answer.wav"
    question.write_bytes(wav(say("what time is it", lead_ms=1000)))
    said, loudest = [], []
    with serving(tmp_path) as server:
        for _ in range(2):
            done = _talk(program, f"{server.url}/xiaozhi/ota/", answer, question)
            assert done.returncode == 0, done.stdout + done.stderr
            said.append(done.stdout)
            loudest.append(np.abs(_answers(answer)[0].astype(np.int32)).max())
            chosen = ("devices", "profile", DEVICE, "volume=20", "--url", server.url)
            assert run_earshot(tmp_path, *chosen).returncode == 0
    assert "volume: " not in said[0]
    assert "volume: 20\n" in said[1]
    assert loudest[1] < loudest[0] / 3


@contextmanager
def _answering(status: int, body: bytes, hosts: list[str] | None = None) -> Iterator[str]:
    """Runs a server that gives every check-in the same answer and refuses sessions; yields its URL.

    In `body`, HOST stands for its host and port. `hosts` gets the `Host` header of each request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Device-Id"] == DEVICE
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.replace(b"HOST", self._note_host().encode()))

        def do_GET(self) -> None:
            self._note_host()
            self.send_response(403)
            self.end_headers()

        def _note_host(self) -> str:
            if hosts is not None:
                hosts.append(self.headers["Host"])
            return str(self.headers["Host"])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/xiaozhi/ota/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "code", "told"),
    [
        (200, b'{"activation":{"message":"x","code":"123456"}}', 2, "code: 123456\n"),
        (403, b"no", 1, "the check-in was answered with: HTTP/1.0 403 Forbidden"),
        (200, b'{"websocket":', 1, "the check-in was answered with: HTTP/1.0 200"),
        (200, b'{"websocket":{"url":"ws://127.0.0.1:1/x","token":"t"}}', 1, "cannot connect"),
        (200, b'{"websocket":{"url":"wss://[::1]:1/x","token":"t"}}', 1, "has no TLS"),
    ],
)
def test_a_check_in_without_a_usable_answer_ends_the_example(
    status: int, body: bytes, code: int, told: str, program: Path, tmp_path: Path
) -> None:
    # Our own server approves a device on its own machine unasked, so a code is shown by this one;
    # it says HTTP/1.0, which a check-in may.
    with _answering(status, body) as url:
        done = _talk(program, url, tmp_path / "answer.wav", tmp_path / "none.wav")
    assert done.returncode == code
    assert told in done.stdout + done.stderr


def test_every_request_names_the_port(program: Path, tmp_path: Path) -> None:
    """Virtual hosts and protection from DNS rebinding compare `Host` with the port."""
    hosts: list[str] = []
    question = tmp_path / "question.wav"
    question.write_bytes(wav(np.zeros(1600, np.int16)))
    body = b'{"websocket":{"url":"ws://HOST/xiaozhi/v1/","token":"t"}}'
    with _answering(200, body, hosts) as url:
        done = _talk(program, url, tmp_path / "answer.wav", question)
    assert "failed: protocol" in done.stderr  # it is asked, and says HTTP/1.0
    assert hosts == [url.split("/")[2]] * 2


ADDRESSES = {
    "http://127.0.0.1:8080/xiaozhi/ota/": "127.0.0.1:8080 127.0.0.1 8080 /xiaozhi/ota/",
    "http://house.lan": "house.lan house.lan 80 /",
    "ws://[::1]:8080/v1?a=b:c": "[::1]:8080 ::1 8080 /v1?a=b:c",
    "http://[fe80::1%eth0]/": "[fe80::1%eth0] fe80::1%eth0 80 /",
    "https://house.lan/": "this example has no TLS",
    "wss://[::1]/": "this example has no TLS",
    **dict.fromkeys(
        (
            "house.lan:8080",
            "ftp://house.lan/",
            "http://",
            "http:///path",
            "http://[::1/",
            "http://[]/",
            "http://[::1]8080/",
            "http://::1/",
            "http://house.lan:/",
            "http://house.lan:port/",
            "http://house.lan:123456789/",
            "http://user@house.lan/",
            f"http://{'h' * 600}/",
        ),
        "not an address such as",
    ),
}


def test_the_forms_of_a_server_address(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(
        '#include "host_net.h"\n#include <stdio.h>\n'
        "int main(int argc, char **argv) {\n"
        "  for (net_url at; argc > 1 && argv[1] != NULL; argv++)\n"
        "    if (net_parse(argv[1], &at))\n"
        '      fprintf(stderr, "%s %s %s %s\\n", at.authority, at.host, at.port, at.path);\n'
        "  return 0;\n}\n",
        encoding="utf-8",
    )
    sources = ("-Iexamples", "examples/host_net.c", tmp_path / "main.c")
    parse = link_with_library("gcc", tmp_path / "parse", *sources)
    done = run([parse, *ADDRESSES], capture_output=True, text=True, check=True)
    for line, expected in zip(done.stderr.splitlines(), ADDRESSES.values(), strict=True):
        assert expected in line
