"""Check that the private names of aiortc and its libraries exist. Their versions are pinned."""

from core.errors import EarshotError


def require_private_names(thing: object, *names: str) -> None:
    """Raises EarshotError if the object lacks one of the names."""
    for name in names:
        if not hasattr(thing, name):
            kind = type(thing).__name__
            needed = "aiortc 1.16, aioice 0.13 and pylibsrtp 1.0 are needed"
            raise EarshotError(f"there is no {kind}.{name}: {needed}")
