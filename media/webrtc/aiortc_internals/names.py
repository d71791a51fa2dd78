"""aiortc and its parts by names that they call private: pinned versions, and a check of each."""

from core.errors import EarshotError


def require_private_names(thing: object, *names: str) -> None:
    """Raises EarshotError if one of them is missing."""
    for name in names:
        if not hasattr(thing, name):
            kind = type(thing).__name__
            needed = "aiortc 1.16, aioice 0.13 and pylibsrtp 1.0 are needed"
            raise EarshotError(f"there is no {kind}.{name}: {needed}")
