"""The installed version."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """As the package says; 0 when run from a folder that was never installed."""
    try:
        return version("earshot")
    except PackageNotFoundError:
        return "0"
