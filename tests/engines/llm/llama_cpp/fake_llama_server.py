"""A stand-in for llama-server: it takes the same options and key, and answers some requests in the
form of release b0.5.0 (`tools/server/server-task.cpp`), with texts that are fixed.

It runs as a program: `python -m tests.engines.llm.llama_cpp.fake_llama_server --port PORT`.
"""

import json
import os
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ASKED = "What is the capital of France?"
ENDLESS = "Count from one to ten thousand."
"Prompt whose answer goes on until the client leaves."
MANY_WORDS = "many words " * 4000
"Prompt that is longer than the context."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= "yes" | "no"'
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)

WORDS = ("The", " capital", " of", " France", " is", " Paris", ".")
USAGE = {
    "completion_tokens": 8,
    "prompt_tokens": 37,
    "total_tokens": 45,
    "prompt_tokens_details": {"cached_tokens": 0},
}


class LlamaServer(BaseHTTPRequestHandler):
    """Answers requests that have the key."""

    protocol_version = "HTTP/1.1"
    endless = 0
    "Number of answers without an end that are being sent."

    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": "tiny", "owned_by": "llamacpp"}]},
            "/slots": [{"id": 0, "is_processing": LlamaServer.endless > 0}],
        }
        if self.path == "/health" or self._has_key():
            self._send(200, answers[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._has_key():
            return
        if self.path == "/v1/completions":
            text = "yes" if body.get("grammar") == GRAMMAR else "".join(WORDS)
            choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": "stop"}
            self._send(200, {"choices": [choice], "object": "text_completion", "usage": USAGE})
            return
        content = body["messages"][-1]["content"]
        if content == MANY_WORDS:
            why = "request (8036 tokens) exceeds the available context size (2048 tokens)"
            kind = {"type": "exceed_context_size_error", "n_prompt_tokens": 8036, "n_ctx": 2048}
            self._send(400, {"error": {"code": 400, "message": why, **kind}})
        elif isinstance(content, list):
            why = "image input is not supported - hint: you may need to provide the mmproj"
            self._send(500, {"error": {"code": 500, "message": why, "type": "server_error"}})
        elif body.get("stream"):
            self._stream(is_endless=content == ENDLESS)
        else:
            text = '{"city": "Paris"}' if "response_format" in body else "".join(WORDS)
            message = {"role": "assistant", "content": text}
            choice = {"finish_reason": "stop", "index": 0, "message": message}
            self._send(200, {"choices": [choice], "object": "chat.completion", "usage": USAGE})

    def _has_key(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {os.environ['LLAMA_API_KEY']}":
            return True
        self._send(401, {"error": {"code": 401, "message": "Invalid API Key"}})
        return False

    def _stream(self, *, is_endless: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self._event({"role": "assistant", "content": None})
        LlamaServer.endless += is_endless
        with suppress(OSError):
            while is_endless:
                self._event({"content": "on "})
                time.sleep(0.02)
        LlamaServer.endless -= is_endless
        if is_endless:
            return
        for word in WORDS:
            self._event({"content": word})
        self._event({}, finish_reason="stop")
        usage = {"choices": [], "object": "chat.completion.chunk", "usage": USAGE}
        self.wfile.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())

    def _event(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        choice = {"finish_reason": finish_reason, "index": 0, "delta": delta}
        chunk = {"choices": [choice], "object": "chat.completion.chunk"}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), LlamaServer).serve_forever()
