"""Differences between servers in the request fields that they accept."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engines.runtime.openai_http.errors import OpenAiHttpError

LIMIT_FIELD, NEW_LIMIT_FIELD = "max_tokens", "max_completion_tokens"
"Field for the longest answer: its usual name, and the one of OpenAI's newer models."
USAGE_FIELD = "stream_options"
"Field that asks the server to send the number of tokens."
SAMPLING_FIELDS = ("temperature", "top_p")
OPTIONAL_FIELDS = ("parallel_tool_calls", "reasoning_effort")
"Fields that are left out if refused: an answer without them is better than none."
TEMPLATE_FIELD, EFFORT_FIELD = "chat_template_kwargs", "reasoning_effort"
EFFORTS = ("none", "minimal", "low")
"Values for as few thoughts as possible, tried in this order until the model knows one."
_ABOUT_VALUE = re.compile(r"value|should be|must be|one of", re.IGNORECASE)
"Matches a refusal of one value. A refusal without a match is about the field with any value."
UNSUPPORTED_MARK = "nsupported"
"Part of OpenAI's codes (`unsupported_value`) and messages, but not of those about a bad range."


@dataclass(frozen=True, slots=True)
class ServerQuirks:
    """Quirks of one server. They come from its refusals, and are kept after a request succeeded."""

    sends_usage_option: bool = True
    "Send `stream_options`. Some servers refuse fields that they do not know."
    has_new_limit_field: bool = False
    "Send `max_completion_tokens`. OpenAI's newer models refuse `max_tokens`."
    takes_sampling: bool = True
    "Send `temperature` and `top_p`. OpenAI's reasoning models refuse them."
    takes_template_fields: bool = True
    "Send `chat_template_kwargs`. Some servers do not know this field."
    refused: frozenset[tuple[str, str | bool]] = frozenset()
    "(field, value) of `OPTIONAL_FIELDS` that are not sent. Other values of the field may be."

    def merge(self, other: "ServerQuirks") -> "ServerQuirks":
        """Returns the quirks of both."""
        return ServerQuirks(
            self.sends_usage_option and other.sends_usage_option,
            self.has_new_limit_field or other.has_new_limit_field,
            self.takes_sampling and other.takes_sampling,
            self.takes_template_fields and other.takes_template_fields,
            self.refused | other.refused,
        )

    def adapt(self, body: Mapping[str, object]) -> dict[str, object]:
        """Returns the request as this server accepts it."""
        adapted = dict(body)
        if not self.sends_usage_option:
            adapted.pop(USAGE_FIELD, None)
        if self.has_new_limit_field and LIMIT_FIELD in adapted:
            adapted[NEW_LIMIT_FIELD] = adapted.pop(LIMIT_FIELD)
        if not self.takes_sampling:
            adapted = {
                name: value for name, value in adapted.items() if name not in SAMPLING_FIELDS
            }
        if not self.takes_template_fields:
            adapted.pop(TEMPLATE_FIELD, None)
        # "none" is ours; no session asks for it. So the next higher effort may replace it.
        if adapted.get(EFFORT_FIELD) == EFFORTS[0]:
            adapted[EFFORT_FIELD] = next(
                (effort for effort in EFFORTS if (EFFORT_FIELD, effort) not in self.refused),
                EFFORTS[0],
            )
        for name, value in self.refused:
            if name in adapted and adapted[name] == value:
                del adapted[name]
        return adapted

    def after_refusal(
        self, refusal: OpenAiHttpError, body: Mapping[str, object]
    ) -> "ServerQuirks | None":
        """Returns the quirks for the next try; None if no field is left that may be the cause.

        refusal: the server's answer to `adapt(body)`.
        """
        if not self.has_new_limit_field and refusal.mentions(NEW_LIMIT_FIELD):
            return replace(self, has_new_limit_field=True)
        is_about_sampling = refusal.mentions(UNSUPPORTED_MARK) and any(
            map(refusal.mentions, SAMPLING_FIELDS)
        )
        if self.takes_sampling and is_about_sampling:
            return replace(self, takes_sampling=False)
        sent = self.adapt(body)
        if TEMPLATE_FIELD in sent and refusal.mentions(TEMPLATE_FIELD):
            return replace(self, takes_template_fields=False)
        named = {field: sent.get(field) for field in OPTIONAL_FIELDS if refusal.mentions(field)}
        refused_values = {
            (field, value) for field, value in named.items() if isinstance(value, str | bool)
        }
        # The server does not know the field, so none of our values for it can help.
        if refused_values and refusal.mentions(EFFORT_FIELD) and not refusal.matches(_ABOUT_VALUE):
            refused_values |= {
                (EFFORT_FIELD, effort) for effort in EFFORTS if body.get(EFFORT_FIELD) in EFFORTS
            }
        if refused_values:
            return replace(self, refused=self.refused | refused_values)
        if self.sends_usage_option:
            return replace(self, sends_usage_option=False)
        return self._without_thinking_fields(body)

    def _without_thinking_fields(self, body: Mapping[str, object]) -> "ServerQuirks | None":
        """Returns quirks without the fields that turn thoughts off; None if none were sent.

        This is the last try: the refusal names no field, and the usage option was not the cause.
        """
        efforts = {
            (EFFORT_FIELD, effort) for effort in EFFORTS if body.get(EFFORT_FIELD) == EFFORTS[0]
        }
        has_fields = (
            TEMPLATE_FIELD in body and self.takes_template_fields
        ) or efforts - self.refused
        if not has_fields:
            return None
        return replace(
            self,
            sends_usage_option=True,
            takes_template_fields=False,
            refused=self.refused | efforts,
        )
