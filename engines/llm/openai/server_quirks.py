"""Differences between servers in the requests that they accept (their dialects)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engines.runtime.openai_http.errors import OpenAiHttpError

LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"
"Field for the longest answer: its usual name, and the one of OpenAI's newer models."
COUNTS = "stream_options"
"Field that asks for the number of tokens."
SAMPLING = ("temperature", "top_p")
WISHES = ("parallel_tool_calls", "reasoning_effort")
"Optional fields: an answer without them is better than none."
TEMPLATE, EFFORT = "chat_template_kwargs", "reasoning_effort"
EFFORTS = ("none", "minimal", "low")
"Values for as few thoughts as possible, tried in this order until the model knows one."
_ABOUT_VALUE = re.compile(r"value|should be|must be|one of", re.IGNORECASE)
"Matches a refusal of this value of the effort; without a match the server knows no effort at all."
UNSUPPORTED = "nsupported"
"Part of OpenAI's codes (`unsupported_value`) and messages, but not of those about a bad range."


@dataclass(frozen=True, slots=True)
class ServerQuirks:
    """The dialect of one server, learned from refusals and kept once a request succeeded."""

    counts_usage: bool = True
    "Send `stream_options`. Some servers refuse fields that they do not know."
    has_new_limit: bool = False
    "Send `max_completion_tokens`. OpenAI's newer models refuse `max_tokens`."
    is_sampled: bool = True
    "Send `temperature` and `top_p`. OpenAI's reasoning models refuse them."
    has_template: bool = True
    "Send `chat_template_kwargs`. Some servers pass nothing on to the chat template."
    refused: frozenset[tuple[str, str | bool]] = frozenset()
    "(field, value) of `WISHES` that are not sent: a model may know other values of the field."

    def with_(self, other: "ServerQuirks") -> "ServerQuirks":
        """Returns the dialect with what both have learned."""
        return ServerQuirks(
            self.counts_usage and other.counts_usage,
            self.has_new_limit or other.has_new_limit,
            self.is_sampled and other.is_sampled,
            self.has_template and other.has_template,
            self.refused | other.refused,
        )

    def of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a request in this dialect."""
        said = dict(body)
        if not self.counts_usage:
            said.pop(COUNTS, None)
        if self.has_new_limit and LIMIT in said:
            said[NEW_LIMIT] = said.pop(LIMIT)
        if not self.is_sampled:
            said = {name: value for name, value in said.items() if name not in SAMPLING}
        if not self.has_template:
            said.pop(TEMPLATE, None)
        # "none" comes from us and from no session, so the next higher effort may replace it.
        if said.get(EFFORT) == EFFORTS[0]:
            said[EFFORT] = next(
                (effort for effort in EFFORTS if (EFFORT, effort) not in self.refused), EFFORTS[0]
            )
        for name, value in self.refused:
            if name in said and said[name] == value:
                del said[name]
        return said

    def after(self, refusal: OpenAiHttpError, body: Mapping[str, Any]) -> "ServerQuirks | None":
        """Returns the dialect to try next; None if the dialect cannot have been the cause.

        body: the request before it was put into this dialect.
        """
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
        if known and refusal.mentions(EFFORT) and not refusal.matches(_ABOUT_VALUE):
            known |= {(EFFORT, effort) for effort in EFFORTS if body.get(EFFORT) in EFFORTS}
        if known:
            return replace(self, refused=self.refused | known)
        if self.counts_usage:
            return replace(self, counts_usage=False)
        return self._without_thoughts_fields(body)

    def _without_thoughts_fields(self, body: Mapping[str, Any]) -> "ServerQuirks | None":
        """Returns the dialect without fields that turn thoughts off; None if there are none.

        It is tried last: the refusal names no field, and the counts were left out already.
        """
        efforts = {(EFFORT, effort) for effort in EFFORTS if body.get(EFFORT) == EFFORTS[0]}
        has_fields = (TEMPLATE in body and self.has_template) or efforts - self.refused
        if not has_fields:
            return None
        return replace(self, counts_usage=True, has_template=False, refused=self.refused | efforts)
