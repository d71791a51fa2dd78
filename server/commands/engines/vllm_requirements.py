"""Prints what vLLM for processors requires, from its own metadata, as JSON. Runs as a script in
vLLM's environment: `python -I vllm_requirements.py DISTRIBUTION` prints {"torch": "torch==...",
"others": [...]}. It needs only pip's companion `packaging`, which was installed there before."""

import json
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import requires

from packaging.requirements import Requirement

VERSION = "0.32.0"
"Release of vLLM, for processors and GPUs. A newer one may change options and answers."

TORCH = "torch"

EXCLUDED_PACKAGES = ("torchaudio", "torchvision", "torchcodec")
"""Packages that vLLM requires for images, video and audio, which Earshot never sends. The package
index has them only for CUDA, and with a torch for processors they break the import of
transformers."""


def split_requirements(required: Iterable[str], extra: str = "") -> Mapping[str, str | list[str]]:
    """Returns torch's requirement and all others, with markers resolved for this interpreter.
    Raises ValueError if there is no torch."""
    torch, others = "", []
    for line in required:
        requirement = Requirement(line)
        name = requirement.name.lower().replace("_", "-")
        if name in EXCLUDED_PACKAGES:
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        requirement.marker = None
        if name == TORCH:
            torch = str(requirement)
        else:
            others.append(str(requirement))
    if not torch:
        raise ValueError("it does not require torch")
    return {"torch": torch, "others": others}


if __name__ == "__main__":
    json.dump(split_requirements(requires(sys.argv[1]) or ()), sys.stdout)
