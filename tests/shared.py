"""The place of recordings outside the repository: a folder `shared` beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_BESIDE = ROOT.parent / "shared"

SHARED: Path | None = _BESIDE if _BESIDE.is_dir() else None

NEEDS_SHARED = "needs ../shared"
"How a skip reason starts when test data beside the repository is missing; allowed in CI."


def shared_data(*parts: str) -> Path:
    """Returns a file or folder below ../shared/data; skips the test if it is missing."""
    path = _BESIDE.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"{NEEDS_SHARED}/data/{'/'.join(parts)}")
    return path
