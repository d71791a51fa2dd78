"""What a vLLM for processors needs, from its own metadata. Runs in vLLM's environment as a script:
`python -I vllm_requirements.py DISTRIBUTION` prints JSON, {"torch": "torch==...", "others": [...]}.

Only pip's companion `packaging` is needed, which was installed there first.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import requires

from packaging.requirements import Requirement

VERSION = "0.32.0"
"The release of vLLM, for processors as for GPUs. A newer one may change options and answers."

TORCH = "torch"

EXCLUDED_PACKAGES = ("torchaudio", "torchvision", "torchcodec")
"""Required for pictures, films and sound, which we never send; from the package index they come for
CUDA, and beside a torch for processors they break the import of transformers."""


def recipe(required: Iterable[str], extra: str = "") -> Mapping[str, str | list[str]]:
    """Which torch, and what else, as this interpreter needs it. Markers are resolved.

    Raises ValueError when no torch is named.
    """
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
        raise ValueError("it names no torch")
    return {"torch": torch, "others": others}


if __name__ == "__main__":
    json.dump(recipe(requires(sys.argv[1]) or ()), sys.stdout)
