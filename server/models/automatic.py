"""Which model to fetch for this machine, by the rule that chooses among those that are there."""

from pathlib import Path

from engines.registry import Available
from serving.catalogue import Entry, entries
from serving.placement.choose import WHISPER, Choice, Wanted, Weights, choose
from serving.placement.hardware import Hardware


def automatic(hardware: Hardware) -> Entry:
    """The one that would be taken if all the sizes were in the models folder."""
    offered = {str(Path(entry.folder)): entry for entry in entries() if entry.is_automatic}
    weights = [Weights(Path(folder), entry.size_mb) for folder, entry in offered.items()]
    choice: Choice = choose(
        "asr", Wanted(engine=WHISPER), [Available(WHISPER, True, "")], weights, hardware
    )
    return offered[str(choice.options["model"])]
