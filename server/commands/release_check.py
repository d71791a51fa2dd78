"""Asks the package index for a newer release, only for `earshot doctor --update`."""

import asyncio
from collections.abc import Iterator, Mapping
from platform import python_version
from urllib.parse import urlsplit

import aiohttp
import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from server.commands.doctor_probes import ProbeResult
from server.version import DISTRIBUTION, product_version

INDEX = "https://pypi.org/simple"
"Address that is asked, unless PIP_INDEX_URL names another index."

TIME_LIMIT_S = 10.0
"Time for the whole answer, in seconds. An index needs less than one."

MAX_ANSWER_BYTES = 4 * 2**20
"Largest answer that is read. A thousand files of releases take 1 MB."

LISTING = "application/vnd.pypi.simple.v1+json"
"Content type of an index's listing as JSON (PEP 691)."


class _File(msgspec.Struct, rename="kebab"):
    """A file of a release in the index's listing."""

    filename: str
    requires_python: str | None = None
    yanked: bool | str = False
    "True or the reason: the release was withdrawn."


class _Listing(msgspec.Struct):
    files: list[_File]


class _NoListing(Exception):
    """Raised when the index gives no list of releases; the message says why."""


def index_of(environ: Mapping[str, str]) -> str:
    """Returns the address of the package index, as pip's variable says it."""
    return environ.get("PIP_INDEX_URL", "").strip() or INDEX


def examine_release(environ: Mapping[str, str]) -> Iterator[ProbeResult]:
    """Yields what the index says of newer releases; it is asked only when this is read."""
    yield asyncio.run(check_release(product_version(), index_of(environ), python_version()))


async def check_release(installed: str, index: str, python: str) -> ProbeResult:
    """Compares the `installed` version with the newest release in the index.

    `index`: address as in pip's settings; it may hold a password, which is not repeated. `python`:
    version of Python that the release must run with. No other address is asked: redirects are not
    followed. Never fails, because a server answers without the index, too.
    """
    host = _host_of(index)
    if not host:
        return ProbeResult(
            "note", "newer releases: PIP_INDEX_URL must be an address with http:// or https://"
        )
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            listing = await _listing(f"{index.rstrip('/')}/{DISTRIBUTION}/")
    except TimeoutError:
        return _unknown(host, f"no answer within {TIME_LIMIT_S:g} s")
    except _NoListing as error:
        return _unknown(host, str(error))
    # pre-releases are shown only to users of a pre-release
    has_pre = _version(installed) is not None and Version(installed).is_prerelease
    newest = max(
        (version for version in _versions(listing, python) if has_pre or not version.is_prerelease),
        default=None,
    )
    if newest is None:
        return _unknown(host, f"it lists no release for Python {python}")
    present = _version(installed)
    if present is not None and newest <= present:
        return ProbeResult("ok", f"newer releases: none; {host} has {newest}, this is {installed}")
    return ProbeResult(
        "note",
        f"newer releases: {host} has {newest}, this is {installed};"
        " docs/operate.md (Upgrade) says how to change to it",
    )


def _host_of(index: str) -> str:
    """Returns host and port of an address, without its password; empty for a wrong address."""
    try:
        address = urlsplit(index)
        if address.scheme not in ("http", "https") or not address.hostname:
            return ""
        return f"{address.hostname}:{address.port}" if address.port else address.hostname
    except ValueError:
        return ""


def _unknown(host: str, why: str) -> ProbeResult:
    return ProbeResult("note", f"newer releases: unknown, {host} was asked: {why}")


async def _listing(url: str) -> _Listing:
    """Reads the list of files. Raises _NoListing."""
    try:
        async with (
            aiohttp.ClientSession(trust_env=True) as client,
            client.get(url, headers={"Accept": LISTING}, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise _NoListing(_reason_of(answer.status))
            body = bytearray()
            async for block in answer.content.iter_any():
                body += block
                if len(body) > MAX_ANSWER_BYTES:
                    raise _NoListing(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    except (aiohttp.ClientConnectorError, OSError):
        raise _NoListing("it cannot be reached") from None
    except (aiohttp.ClientError, ValueError):  # ValueError: a port or name that no URL can have
        raise _NoListing("it does not answer as a package index") from None
    try:
        return msgspec.json.decode(bytes(body), type=_Listing)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _NoListing("it does not answer as a package index with JSON (PEP 691)") from None


def _reason_of(status: int) -> str:
    if status == 404:
        return f"it has no package {DISTRIBUTION}"
    if 300 <= status < 400:
        return "it sends us to another address, which is not asked"
    return f"HTTP status {status}"


def _versions(listing: _Listing, python: str) -> Iterator[Version]:
    """Yields the versions that were not withdrawn and run with this Python."""
    for file in listing.files:
        version = _version_of_file(file.filename)
        if version is not None and not file.yanked and _runs_with(file.requires_python, python):
            yield version


def _version_of_file(name: str) -> Version | None:
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[1]
        return parse_sdist_filename(name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _runs_with(wanted: str | None, python: str) -> bool:
    try:
        return SpecifierSet(wanted or "").contains(python, prereleases=True)
    except InvalidSpecifier:
        return False
