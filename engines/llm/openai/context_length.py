"""Recognises refusals of a prompt that is too long, in the words of different servers. Pure."""

import re

from engines.runtime.openai_http.errors import OpenAiHttpError

STATUS_TOO_LARGE = 413
"HTTP status for a request that is too large."
REFUSAL_STATUSES = (400, 422)
"HTTP statuses with which servers refuse a request for its content: fields, or length."
_LENGTH = re.compile(
    r"context[ _](length|size|window)|n_ctx|maximum (model|sequence) length"
    r"|(maximum|too large).{0,60}(input|number of) tokens|(prompt|input) (is )?too long"
    r"|tokens.{0,3} \+ .?max_new_tokens",
    re.IGNORECASE,
)
"""Wordings of different servers for a prompt that does not fit the context window.

OpenAI: code `context_length_exceeded`, "maximum context length", "exceeds the context window".
vLLM: "maximum context length", earlier "maximum model length". llama.cpp: "exceeds the available
context size", with `n_ctx`. Ollama: "prompt too long", "input length exceeds the context length".
SGLang: "model's context length". TGI: "`inputs` tokens + `max_new_tokens`".
"""


def is_about_length(text: str) -> bool:
    """Returns True if a server's message says that the prompt, or prompt and answer together,
    exceed the context window."""
    return _LENGTH.search(text) is not None


def is_length_refusal(error: OpenAiHttpError) -> bool:
    """Returns True if the server refused the request because it exceeds the context window."""
    if error.status == STATUS_TOO_LARGE:
        return True
    return error.status in REFUSAL_STATUSES and error.body_matches(_LENGTH)
