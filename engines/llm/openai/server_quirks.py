"""Where servers differ in what they want to be asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engines.runtime.openai_http.errors import LlmHttpError

LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"
COUNTS = "stream_options"
SAMPLING = ("temperature", "top_p")
WISHES = ("parallel_tool_calls", "reasoning_effort")
"An answer without them is better than none."
TEMPLATE, EFFORT = "chat_template_kwargs", "reasoning_effort"
EFFORTS = ("none", "minimal", "low")
"The least that a model may know, tried in this order."
_ABOUT_VALUE = re.compile(r"value|should be|must be|one of", re.IGNORECASE)
"A server knows the effort, and not this one; else it knows none."
UNSUPPORTED = "nsupported"
"In OpenAI's codes (`unsupported_value`) and sentences, not in those about a value out of range."


@dataclass(frozen=True, slots=True)
class ServerQuirks:
    """Found out by refusals, and remembered once a request went through."""

    counts_usage: bool = True
    "Some servers refuse a field that they do not know."
    has_new_limit: bool = False
    "OpenAI's newer models refuse the old name."
    is_sampled: bool = True
    "OpenAI's reasoning models refuse to be told how."
    has_template: bool = True
    "Some servers pass nothing on to the chat template."
    refused: frozenset[tuple[str, str | bool]] = frozenset()
    "Of `WISHES`, with the value: a model may know some of them."

    def with_(self, other: "ServerQuirks") -> "ServerQuirks":
        """What either has found out."""
        return ServerQuirks(
            self.counts_usage and other.counts_usage,
            self.has_new_limit or other.has_new_limit,
            self.is_sampled and other.is_sampled,
            self.has_template and other.has_template,
            self.refused | other.refused,
        )

    def of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request in this dialect."""
        said = dict(body)
        if not self.counts_usage:
            said.pop(COUNTS, None)
        if self.has_new_limit and LIMIT in said:
            said[NEW_LIMIT] = said.pop(LIMIT)
        if not self.is_sampled:
            said = {name: value for name, value in said.items() if name not in SAMPLING}
        if not self.has_template:
            said.pop(TEMPLATE, None)
        if said.get(EFFORT) == EFFORTS[0]:  # no wish of a session: it is ours, and may be weaker
            said[EFFORT] = next(
                (effort for effort in EFFORTS if (EFFORT, effort) not in self.refused), EFFORTS[0]
            )
        for name, value in self.refused:
            if name in said and said[name] == value:
                del said[name]
        return said

    def after(self, refusal: LlmHttpError, body: Mapping[str, Any]) -> "ServerQuirks | None":
        """What to try next; None: it will not have been that. `body`: what was to be asked."""
        if not self.has_new_limit and refusal.mentions(NEW_LIMIT):
            return replace(self, has_new_limit=True)
        is_about_sampling = refusal.mentions(UNSUPPORTED) and any(map(refusal.mentions, SAMPLING))
        if self.is_sampled and is_about_sampling:
            return replace(self, is_sampled=False)
        sent = self.of(body)
        if TEMPLATE in sent and refusal.mentions(TEMPLATE):
            return replace(self, has_template=False)
        blamed = {wish: sent.get(wish) for wish in WISHES if refusal.mentions(wish)}
        known = {(wish, said) for wish, said in blamed.items() if isinstance(said, str | bool)}
        if known and refusal.mentions(EFFORT) and not refusal.is_about(_ABOUT_VALUE):
            known |= {(EFFORT, effort) for effort in EFFORTS if body.get(EFFORT) in EFFORTS}
        if known:
            return replace(self, refused=self.refused | known)
        if self.counts_usage:
            return replace(self, counts_usage=False)
        return self._without_thoughts_fields(body)

    def _without_thoughts_fields(self, body: Mapping[str, Any]) -> "ServerQuirks | None":
        """The refusal names nothing. It was not the counts; perhaps what turns thoughts off."""
        efforts = {(EFFORT, effort) for effort in EFFORTS if body.get(EFFORT) == EFFORTS[0]}
        has_fields = (TEMPLATE in body and self.has_template) or efforts - self.refused
        if not has_fields:
            return None
        return replace(self, counts_usage=True, has_template=False, refused=self.refused | efforts)
