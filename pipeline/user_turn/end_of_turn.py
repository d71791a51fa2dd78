"""How long a pause must be until the turn is over, by how likely it is over. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Literal

Eagerness = Literal["low", "medium", "high", "auto"]


@dataclass(frozen=True, slots=True)
class EndpointDelays:
    """Milliseconds of silence, by the probability that the turn is over."""

    unfinished: float
    unknown: float
    finished: float


WAITS: Mapping[Eagerness, EndpointDelays] = {
    "low": EndpointDelays(1200, 900, 400),
    "medium": EndpointDelays(900, 600, 200),
    "auto": EndpointDelays(600, 450, 120),
    "high": EndpointDelays(450, 300, 120),
}
"""By `eagerness`. Below 120 ms nobody is answered: stops within words are as long."""

LEAST_SURE, MOST_SURE = 0.05, 0.95
"No single witness is believed more than so: sound and words can outvote each other."


def endpoint_delay_ms(eagerness: Eagerness, probability: float | None) -> float:
    """Silence that ends the turn. None and 0.5 tell nothing; between, it is a straight line."""
    waits = WAITS[eagerness]
    if probability is None:
        return waits.unknown
    sure = 2 * min(1.0, max(0.0, probability)) - 1
    other = waits.finished if sure > 0 else waits.unfinished
    return waits.unknown + abs(sure) * (other - waits.unknown)


def combine_probabilities(*witnesses: float | None) -> float | None:
    """One probability from how it sounds, what it says and whether it is understood; None: none of
    them can tell.

    Odds are multiplied, as of witnesses who know nothing of each other.
    """
    known = [_log_odds(one) for one in witnesses if one is not None]
    return 1 / (1 + exp(-sum(known))) if known else None


def _log_odds(probability: float) -> float:
    bounded = min(MOST_SURE, max(LEAST_SURE, probability))
    return log(bounded / (1 - bounded))
