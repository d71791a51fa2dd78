"""Token counts of a response, and rate limits of the language model's server.

This is no part of `core.conversation.events`, because each worker process needs it and starts
sooner without the other events.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One rate limit of the language model's server."""

    name: str
    "Unit that is counted: `requests` or `tokens`."
    limit: int
    remaining: int
    reset_s: float
    "Seconds until the whole limit is available again."


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Rate limits as the language model's server reported them with its last answer; at least
    one."""

    limits: tuple[RateLimit, ...]

    def after(self, elapsed_s: float) -> "RateLimits":
        """Returns the same limits as they are `elapsed_s` later."""
        aged = (
            replace(limit, reset_s=max(0.0, limit.reset_s - elapsed_s)) for limit in self.limits
        )
        return RateLimits(tuple(aged))


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that a response used; 0 where an engine does not count them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    "Input tokens that the model's server had cached from an earlier request."
