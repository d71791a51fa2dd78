"""Which model to fetch for this machine, by the rule that chooses among those that are there."""

from collections.abc import Mapping
from pathlib import Path

from serving.catalogue import CatalogueEntry, entries
from serving.placement.benchmarks import ModelBenchmark
from serving.placement.choose import LIVE_MS, WHISPER, EnginePreference, WhisperWeights, best_whisper
from serving.placement.hardware import Hardware

NOBODY_TIMED: Mapping[str, ModelBenchmark] = {}


def automatic(
    hardware: Hardware, measured: Mapping[str, ModelBenchmark] = NOBODY_TIMED
) -> tuple[CatalogueEntry, str]:
    """The one that would be taken if all the sizes were in the models folder, and why. `measured`:
    the figures that are noted there, by folder; also of models that are not there any more."""
    offered = {entry.folder: entry for entry in entries() if entry.is_automatic}
    weights = [
        WhisperWeights(Path(folder), entry.size_mb, measured=measured.get(folder))
        for folder, entry in offered.items()
    ]
    where = "of the usual sizes"
    best, why, is_untimed = best_whisper(weights, EnginePreference(engine=WHISPER), hardware, where)
    if is_untimed:
        why += (
            f". The first start times it; if a sentence takes more than {LIVE_MS:.0f} ms, the start "
            "takes a smaller one that is there, and `earshot models pull` then fetches one"
        )
    return offered[best.name], why
