"""Version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "earshot-server"
"Name of the package. On the package index `earshot` is another project."


def product_version() -> str:
    """Returns the package's version, or 0 if it runs from a folder that was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
