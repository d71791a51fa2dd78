"""What a service that a session depends on still lets it do. Part of `core.events`."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RateLimit:
    name: str
    "What is counted: `requests` or `tokens`."
    limit: int
    remaining: int
    reset_s: float
    "Until all of the limit is there again."


@dataclass(frozen=True, slots=True)
class RateLimits:
    """As the language model's server told them with its last answer; at least one."""

    limits: tuple[RateLimit, ...]

    def after(self, elapsed_s: float) -> "RateLimits":
        """The same, told so much later."""
        aged = (replace(one, reset_s=max(0.0, one.reset_s - elapsed_s)) for one in self.limits)
        return RateLimits(tuple(aged))
