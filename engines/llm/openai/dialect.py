"""Where servers differ in what they want to be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engines.llm.openai.refusals import Refused

LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"
COUNTS = "stream_options"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Found out by refusals, and remembered once a request went through."""

    counts_usage: bool = True
    "Some servers refuse a field that they do not know."
    has_new_limit: bool = False
    "OpenAI's newer models refuse the old name."

    def of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request in this dialect."""
        said = dict(body)
        if not self.counts_usage:
            said.pop(COUNTS, None)
        if self.has_new_limit and LIMIT in said:
            said[NEW_LIMIT] = said.pop(LIMIT)
        return said

    def after(self, refusal: Refused) -> "Dialect | None":
        """What to try next; None: it will not have been that."""
        if not self.has_new_limit and refusal.mentions(NEW_LIMIT):
            return replace(self, has_new_limit=True)
        return replace(self, counts_usage=False) if self.counts_usage else None
