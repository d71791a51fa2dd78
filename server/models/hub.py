"""Client of a model hub: lists the files of a repository at one commit, and reads their bytes. It
replaces `huggingface_hub`: version 2 restarts interrupted files in every process and checks no
checksum."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from server.models.errors import HubBusy, HubUnreachable, ModelsError

HUB = "https://huggingface.co"
STALL_S = 15.0
"Longest time without a byte, in seconds; then the connection is given up."

ATTEMPTS = 4
"Attempts in a row without a new byte; then the hub counts as unreachable."

MAX_LISTING_BYTES = 16 * 2**20
"Limit of a repository's listing. Ten thousand files take 2 MB."

MAX_CONFIG_BYTES = 2**20
"Limit of a file that is read before the download. The config.json of a large model takes 100 kB."

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"HTTP statuses after which another attempt may succeed."


class _LfsInfo(msgspec.Struct, frozen=True):
    """Size and checksum of a large file, in the hub's listing."""

    sha256: str
    size: int


class _Sibling(msgspec.Struct, frozen=True, rename="camel"):
    """One file in the hub's listing."""

    rfilename: str
    size: int | None = None
    blob_id: str = ""
    lfs: _LfsInfo | None = None


class _RepositoryInfo(msgspec.Struct, frozen=True):
    """Hub's listing of a repository at one commit."""

    sha: str
    "Commit."
    siblings: tuple[_Sibling, ...] = ()


@dataclass(frozen=True, slots=True)
class HubFile:
    """File of a repository at one commit."""

    repository: str
    commit: str
    "Hash of the commit, so that all files are of the same version."
    path: str
    "Path of the file within the repository."
    size_bytes: int | None
    "Size of the file; None if the hub does not say."
    sha256: str = ""
    "Checksum of a large file; empty if the hub does not say."
    git_sha1: str = ""
    "Checksum of a small file: git's hash of `blob <size>`, a zero byte and the content."
    keeps_folders: bool = False
    "True: the file has the same path in the model's folder. False: only its name is kept."

    @property
    def local_path(self) -> str:
        """Path of the file within the model's folder."""
        return self.path if self.keeps_folders else self.path.rpartition("/")[2]

    @property
    def identity(self) -> str:
        """Text that differs if the content differs."""
        return self.sha256 or self.git_sha1 or self.commit


@dataclass(frozen=True, slots=True)
class Hub:
    """One model hub, reached over HTTP. Blocking."""

    endpoint: str = HUB
    "Address of the hub, without a slash at the end."
    token: str = field(default="", repr=False)
    "Access token; empty: requests are anonymous."
    stall_s: float = STALL_S
    "Longest time without a byte, in seconds."
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    "Function that waits between attempts, in seconds."

    def __post_init__(self) -> None:
        """Checks the address. Raises ModelsError without quoting it: it may hold a password."""
        try:
            address = urlsplit(self.endpoint)
            _ = address.port
        except ValueError:
            raise ModelsError(
                "the address of a hub (HF_ENDPOINT, or of a page) cannot be read as a URL"
            ) from None
        if "@" in address.netloc:
            raise ModelsError(
                "the address of a hub (HF_ENDPOINT, or of a page) may not hold a user or a"
                " password; a token goes into HF_TOKEN"
            )

    def files(self, repository: str, revision: str = "main") -> tuple[HubFile, ...]:
        """Lists a repository's files. `revision`: branch, tag or commit. Raises ModelsError."""
        path = f"api/models/{quote(repository)}/revision/{quote(revision, safe='')}?blobs=true"
        subject = f"{repository} at {revision}"
        body = self._read_listing(path, subject)
        try:
            listing = msgspec.json.decode(body, type=_RepositoryInfo)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelsError(f"{self.endpoint}: cannot list {subject}: {error}") from error
        return tuple(_hub_file(repository, listing.sha, sibling) for sibling in listing.siblings)

    def open(self, file: HubFile, start: int) -> Any:
        """Opens a file for reading. Returns the response with the bytes from `start` on (status
        206), or with all (200)."""
        path = f"{quote(file.repository)}/resolve/{quote(file.commit)}/{quote(file.path)}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        return self._open(path, headers, f"{file.repository}/{file.path}")

    def read(self, file: HubFile) -> bytes:
        """Returns the first MAX_CONFIG_BYTES of a small file. Raises ModelsError."""
        with self.open(file, 0) as answer:
            try:
                content: bytes = answer.read(MAX_CONFIG_BYTES)
            except (OSError, HTTPException) as error:
                raise HubUnreachable(f"{self.endpoint}: {reason(error)}") from error
        return content

    def unreachable(self, limit_s: float) -> str | None:
        """Returns why the hub cannot be used now; None if it answers within `limit_s` seconds with
        an HTTP status below 500."""
        outcomes: list[str | None] = []

        def try_request() -> None:
            try:
                self._request("api/models?limit=1", {}, limit_s).close()
                outcomes.append(None)
            except urllib.error.HTTPError as error:
                outcomes.append(f"HTTP status {error.code}" if error.code >= 500 else None)
            except (OSError, ValueError, HTTPException) as error:
                outcomes.append(reason(error))

        # The socket's timeout does not cover name resolution, which can hang. The thread's does.
        thread = threading.Thread(target=try_request, daemon=True)
        thread.start()
        thread.join(limit_s)
        return outcomes[0] if outcomes else f"no answer within {limit_s:g} s"

    def _read_listing(self, path: str, subject: str) -> bytes:
        for attempt in range(ATTEMPTS - 1):
            try:
                return self._read(path, subject)
            except HubBusy:
                self.sleep(2.0**attempt)
        return self._read(path, subject)

    def _read(self, path: str, subject: str) -> bytes:
        with self._open(path, {}, subject) as answer:
            try:
                body: bytes = answer.read(MAX_LISTING_BYTES)
            except (OSError, HTTPException) as error:
                raise HubUnreachable(f"{self.endpoint}: {reason(error)}") from error
        return body

    def _open(self, path: str, headers: Mapping[str, str], subject: str) -> Any:
        try:
            return self._request(path, headers, self.stall_s)
        except urllib.error.HTTPError as error:
            error.close()
            raise self._error_for_status(error, subject) from error
        except (OSError, ValueError, HTTPException) as error:
            raise HubUnreachable(f"{self.endpoint}: {reason(error)}") from error

    def _request(self, path: str, headers: Mapping[str, str], timeout_s: float) -> Any:
        url = f"{self.endpoint}/{path}"
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError("the address of a hub must begin with http:// or https://")
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310  (checked above)
        request.add_header("User-Agent", "earshot")
        if self.token:
            # An unredirected header is not sent to the storage that a hub redirects to.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310

    def _error_for_status(self, error: urllib.error.HTTPError, subject: str) -> ModelsError:
        """Returns the error that an HTTP status means."""
        if error.code in RETRYABLE_STATUSES:
            return HubBusy(f"{self.endpoint}: HTTP status {error.code} for {subject}")
        if error.code in {401, 403}:
            advice = (
                "HF_TOKEN is refused or may not read it"
                if self.token
                else "it does not exist, or needs a token: set HF_TOKEN"
            )
            return ModelsError(f"{self.endpoint} refuses {subject}: {advice}")
        if error.code == 404:
            return ModelsError(f"{self.endpoint} has no {subject}")
        return ModelsError(f"{self.endpoint}: HTTP status {error.code} for {subject}")


def reason(error: BaseException) -> str:
    """Returns the reason of a connection error in one short line."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _hub_file(repository: str, commit: str, sibling: _Sibling) -> HubFile:
    if sibling.lfs:
        return HubFile(
            repository, commit, sibling.rfilename, sibling.lfs.size, sibling.lfs.sha256.lower()
        )
    return HubFile(
        repository, commit, sibling.rfilename, sibling.size, git_sha1=sibling.blob_id.lower()
    )
