"""llama-server's own answers, recorded once from a build with SmolLM2-135M, and a server that
gives them again.

`python -m tests.engines.llm.llama_cpp.recorded_server --record URL KEY` asks a real server and
writes `recorded_answers.json`. With llama-server's own options it serves what that file holds.
"""

import json
import os
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

FILE = Path(__file__).with_name("recorded_answers.json")

ASKED = "What is the capital of France?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)

ENDLESS = "Count from one to ten thousand."
"""Prompt whose answer does not end: here the first event of another one comes again and again. A
real server is told to go on."""

GREEDY = {"temperature": 0.0, "max_tokens": 24}


def _chat(content: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": content}]
    return "/v1/chat/completions", {"messages": messages, **GREEDY, **more}


REQUESTS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    ("/v1/models", None),
    ("/props", None),
    _chat(ASKED),
    _chat(ASKED, stream=True, stream_options={"include_usage": True}),
    _chat(
        ASKED,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    ),
    _chat(
        [{"type": "text", "text": ASKED}, {"type": "image_url", "image_url": {"url": PIXEL}}],
    ),
    _chat("many words " * 4000),
    ("/v1/completions", {"prompt": "The capital of France is", **GREEDY}),
    (
        "/v1/completions",
        {"prompt": "Is Paris in France?", "grammar": 'root ::= "yes" | "no"', **GREEDY},
    ),
)
"Path and body of every recorded request; None: GET."


def key_of(path: str, body: dict[str, Any] | None) -> str:
    """Returns what tells recorded requests apart. The limits of an answer do not matter."""
    if body is None:
        return path
    told = (body.get("prompt"), body.get("messages", [{}])[-1].get("content"))
    form = (bool(body.get("stream")), body.get("response_format"), body.get("grammar"))
    text = json.dumps([path, told, form], sort_keys=True)
    return text if len(text) < 500 else f"{text[:400]}... {len(text)}"


def record(url: str, key: str) -> None:
    """Asks a real llama-server, and writes its answers."""
    answers = {}
    for path, body in REQUESTS:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        try:
            response = urlopen(Request(f"{url}{path}", data, headers), timeout=300)
        except HTTPError as error:
            response = error
        with response:
            text = response.read().decode()
            answers[key_of(path, body)] = {
                "status": response.status,
                "content_type": response.headers["Content-Type"],
                "text": text,
            }
    FILE.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


class RecordedAnswers(BaseHTTPRequestHandler):
    """Answers recorded requests with the right key, and refuses all others."""

    protocol_version = "HTTP/1.1"
    answers: dict[str, Any]
    endless = 0
    "Number of endless answers that are being sent."

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, "application/json", '{"status": "ok"}')
        else:
            self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any] | None) -> None:
        if self.headers["Authorization"] != f"Bearer {os.environ['LLAMA_API_KEY']}":
            self._send(401, "application/json", '{"error": {"message": "Invalid API Key"}}')
            return
        if self.path == "/slots":
            slots = [{"id": 0, "is_processing": RecordedAnswers.endless > 0}]
            self._send(200, "application/json", json.dumps(slots))
            return
        key = key_of(self.path, body)
        if body and body.get("messages", [{}])[-1].get("content") == ENDLESS:
            self._send_endless()
            return
        if key not in self.answers:
            message = json.dumps({"error": {"message": f"not recorded: {key}"}})
            self._send(400, "application/json", message)
            return
        answer = self.answers[key]
        self._send(answer["status"], answer["content_type"], answer["text"])

    def _send_endless(self) -> None:
        recorded = self.answers[key_of(*_chat(ASKED, stream=True))]
        event = recorded["text"].partition("\n\n")[0] + "\n\n"
        self.send_response(200)
        self.send_header("Content-Type", recorded["content_type"])
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        RecordedAnswers.endless += 1
        with suppress(OSError):
            while True:
                self.wfile.write(event.encode())
                time.sleep(0.02)
        RecordedAnswers.endless -= 1

    def _send(self, status: int, content_type: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def serve(port: int) -> None:
    """Serves the recorded answers for ever."""
    RecordedAnswers.answers = json.loads(FILE.read_text(encoding="utf-8"))
    ThreadingHTTPServer(("127.0.0.1", port), RecordedAnswers).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(*sys.argv[2:])
    else:
        serve(int(sys.argv[sys.argv.index("--port") + 1]))
