"""The installed version, and the name it is installed by."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "earshot-server"
"On the package index, `earshot` is another project."


def product_version() -> str:
    """As the package says; 0 when run from a folder that was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
