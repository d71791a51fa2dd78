"""A fake model hub: the parts of its API that a download uses, and its failures."""

import hashlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.json import encode

from server.models.hub import Hub
from serving.placement.choose import MULTILINGUAL_TOKENS

TINY = "Systran/faster-whisper-tiny"

LARGE = (".bin", ".safetensors", ".pt", ".bz2")
"Kept outside git, with a sha256."


def weights_file(
    length: int = 300_000, spec: str = "WhisperSpec", vocabulary: int = MULTILINGUAL_TOKENS
) -> bytes:
    """Returns a `model.bin` with one float16 variable, which says how many tokens it knows."""

    def text(words: str) -> bytes:
        return struct.pack("<H", len(words) + 1) + words.encode() + b"\0"

    header = struct.pack("<I", 6) + text(spec) + struct.pack("<II", 3, 1)
    variable = text("decoder/embeddings/weight") + struct.pack("<BIBI", 1, vocabulary, 4, length)
    period = bytes(index * 31 % 251 for index in range(251))
    content = (period * (length // 251 + 1))[:length]
    return header + variable + content + struct.pack("<I", 0)


def whisper_files() -> dict[str, bytes]:
    return {
        "README.md": b"not wanted",
        "config.json": b'{"lang_ids": [50259, 50260]}',
        "model.bin": weights_file(),
        "tokenizer.json": b"{}",
        "vocabulary.txt": b"a\nb\n",
    }


@dataclass
class FakeHub:
    """The files and failures of the fake hub, and the requests that it got."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = "c" * 40
    token: str = ""
    "Needed, if not empty."
    statuses: list[int] = field(default_factory=list)
    "Of the next answers; then all is well."
    cuts: list[int] = field(default_factory=list)
    "The next answers with a large file's bytes end after so many."
    damaged: dict[str, bytes] = field(default_factory=dict)
    "Files that come otherwise than they are listed."
    stalls_at: int | None = None
    "Bytes of a large file, after which nothing more comes."
    has_ranges: bool = True
    has_checksums: bool = True
    redirects: bool = False
    "Large files lie elsewhere, where the token must not go."
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    "Path, Range and Authorization."
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def hub(self, **changes: Any) -> Hub:
        """Returns the hub as the code under test sees it, without waits between attempts."""
        return Hub(**{"endpoint": self.url, "sleep": lambda _: None, "stall_s": 5.0, **changes})

    def ranges(self, name: str) -> list[str]:
        return [wanted for path, wanted, _ in self.asked if path.endswith(f"/{name}")]

    def listing(self, files: dict[str, bytes]) -> bytes:
        def one(path: str, data: bytes) -> dict[str, Any]:
            if not self.has_checksums:
                return {"rfilename": path}
            if path.endswith(LARGE):
                digest = hashlib.sha256(data).hexdigest()
                lfs = {"sha256": digest, "size": len(data), "pointerSize": 134}
                return {"rfilename": path, "size": len(data), "blobId": "p" * 40, "lfs": lfs}
            digest = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            return {"rfilename": path, "size": len(data), "blobId": digest}

        siblings = [one(path, data) for path, data in files.items()]
        return encode({"id": "x/y", "sha": self.commit, "siblings": siblings})


@contextmanager
def serving(fake: FakeHub) -> Iterator[FakeHub]:
    class Handler(_Handler):
        state = fake

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fake, path = self.state, unquote(urlsplit(self.path).path)
        authorization = self.headers.get("Authorization", "")
        fake.asked.append((path, self.headers.get("Range", ""), authorization))
        if fake.statuses:
            self._say(fake.statuses.pop(0))
        elif path == "/api/models":
            self._say(200, b"[]")
        elif path.startswith("/elsewhere/"):
            self._say_file("/".join(path.split("/")[2:4]), "/".join(path.split("/")[4:]))
        elif fake.token and authorization != f"Bearer {fake.token}":
            self._say(401)
        elif path.startswith("/api/models/"):
            repository = "/".join(path.split("/")[3:5])
            files = fake.repositories.get(repository)
            self._say(200, fake.listing(files)) if files else self._say(404)
        else:
            organisation, name, _, _, *rest = path.strip("/").split("/")
            if fake.redirects and path.endswith(LARGE):
                self.send_response(302)
                elsewhere = fake.url.replace("127.0.0.1", "localhost")
                where = f"{elsewhere}/elsewhere/{organisation}/{name}/{'/'.join(rest)}"
                self.send_header("Location", where)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._say_file(f"{organisation}/{name}", "/".join(rest))

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _say_file(self, repository: str, path: str) -> None:
        fake = self.state
        data = fake.repositories.get(repository, {}).get(path)
        data = fake.damaged.get(path, data)
        if data is None:
            self._say(404)
            return
        start = 0
        wanted = self.headers.get("Range", "")
        if wanted and fake.has_ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if path.endswith(LARGE) and fake.cuts:
            self.wfile.write(body[: fake.cuts.pop(0)])
            self.close_connection = True
            return
        if path.endswith(LARGE) and fake.stalls_at is not None:
            self.wfile.write(body[: max(0, fake.stalls_at - start)])
            self.wfile.flush()
            fake.released.wait()
            return
        self.wfile.write(body)
