"""Costs of one turn, as measured or assumed: numbers, each with its source."""

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

import tomlkit

from core.errors import RequestError

PACKAGE = Path(__file__).parent

GPU_COSTS = PACKAGE / "gpu.toml"
"Costs of a site with GPUs. Those of GPUs are assumptions: none has been measured."


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """Costs of a turn and of an open call. Times are in ms."""

    call_ms_per_s: float
    "Processor time of a gateway for one second of a call, with voice activity detection."
    client_ms_per_s: float
    "Processor time of one client on the same machine for one second; 0: clients are elsewhere."
    turn_ms: float
    "Work of the gateway between the words and the first clause, for which the turn waits."
    speech_s: float
    "Median length of an utterance, in seconds."
    speech_spread: float
    "Spread of that length: standard deviation of its logarithm."
    notice_ms: float
    "From the last sample of speech to the start of the early recognition."
    endpoint_ms: float
    "Median time from the last sample of speech to the decision that the turn is over."
    endpoint_spread: float
    "Spread of that time: standard deviation of its logarithm."
    asr_fixed_ms: float
    "Part of a recognition call that does not depend on the length of the sound."
    asr_ms_per_s: float
    "Part of a recognition call for each second of sound."
    asr_spread: float
    "Spread of the time of a recognition call: standard deviation of its logarithm."
    asr_marginal: float
    "Part of a lone call that each further item of a batch adds, 0 to 1."
    asr_max_batch: float
    "Largest number of items in one recognition call."
    llm_first_ms: float
    "From the request to the first clause, for a lone request."
    llm_rest_ms: float
    "From the first clause to the last, in which the slot stays taken."
    llm_slots: float
    "Answers that one GPU writes at once; 0: the assistant needs no language model."
    llm_growth: float
    "How much longer an answer takes when all slots are taken: 1 means twice the time."
    tts_ms: float
    "Time of the voice for its first clause."
    tts_rest_ms: float
    "Time of the voice for the rest of the answer."
    tts_lanes: float
    "Clauses that one GPU, or one machine without a GPU, computes at once."
    answer_s: float
    "Length of the spoken answer, in seconds."
    out_ms: float
    "From the first sound of the voice to the listener's ear."
    hop_ms: float
    "A call of a pool on another machine, there and back."

    def scaled_models(self, factor: float) -> "TurnCosts":
        """Returns the costs with models that take `factor` times as long."""
        names = ["asr_fixed_ms", "asr_ms_per_s", "llm_first_ms", "llm_rest_ms"]
        names += ["tts_ms", "tts_rest_ms"]
        return replace(self, **{name: factor * getattr(self, name) for name in names})


def read_costs(file: Path) -> TurnCosts:
    """Returns the costs in a TOML file: a table for each number, with `value` and `source`.

    Raises RequestError for a file that cannot be read, and for a number that is missing, unknown,
    negative, or without a source.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{file}: {error}") from error
    names = {field.name for field in fields(TurnCosts)}
    if wrong := names ^ tables.keys():
        known = "unknown" if wrong - names else "missing"
        raise RequestError(f"{file}: {known}: {', '.join(sorted(wrong))}")
    return TurnCosts(**{name: _number(file, name, tables[name]) for name in names})


def write_costs(file: Path, costs: TurnCosts, sources: dict[str, str]) -> None:
    """Writes the costs with the source of each."""
    document = tomlkit.document()
    for field in fields(costs):
        table = tomlkit.table()
        table["value"] = round(float(getattr(costs, field.name)), 3)
        table["source"] = sources[field.name]
        document[field.name] = table
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


def _number(file: Path, name: str, table: object) -> float:
    value = table.get("value") if isinstance(table, dict) else None
    if not isinstance(value, int | float) or value < 0:
        raise RequestError(f"{file}: {name}.value must be a number, 0 or more")
    if not isinstance(table, dict) or not table.get("source"):
        raise RequestError(f"{file}: {name}.source must say where the number comes from")
    return float(value)
