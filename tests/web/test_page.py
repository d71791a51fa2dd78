"""The page's files: types and validators, no other file, and a policy without other origins."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pytest

from tests.web.client import Client, with_client
from web.page import STATIC, load, page_routes

pytestmark = pytest.mark.live

TYPES = {"a.js": "text/javascript", "b.css": "text/css", "home/c.svg": "image/svg+xml"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text("<!doctype html><title>Grüezi</title>")
    (tmp_path / "home").mkdir()
    for name in TYPES:
        (tmp_path / name).write_text(name)
    (tmp_path / "notes.txt").write_text("not for the web")
    return tmp_path


def test_files_have_their_types_and_validators(folder: Path) -> None:
    async def use(client: Client) -> None:
        index = await client.get("/")
        assert index.status == 200
        assert index.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "Grüezi" in await index.text()
        for name, content_type in TYPES.items():
            answer = await client.get(f"/static/{name}")
            assert answer.headers["Content-Type"].startswith(content_type)
            assert await answer.text() == name
            assert answer.headers["Cache-Control"] == "no-cache"

    with_client(page_routes(folder), use)


@pytest.mark.parametrize(
    ("header", "status"),
    [("{etag}", 304), ('"other", W/{etag}', 304), ("*", 304), ('"other"', 200), ("", 200)],
)
def test_an_unchanged_file_is_not_sent_again(folder: Path, header: str, status: int) -> None:
    etag = load(folder)["a.js"].etag

    async def use(client: Client) -> None:
        known = {"If-None-Match": header.format(etag=etag)}
        answer = await client.get("/static/a.js", headers=known)
        assert answer.status == status
        assert answer.headers["ETag"] == etag
        assert (await answer.text()) == ("" if status == 304 else "a.js")

    with_client(page_routes(folder), use)


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "missing.js",
        "home",
        "c.svg",
        "home/missing.svg",
        "%2e%2e%2fpage.py",
        "..%2f..%2fpyproject.toml",
        "home%2f..%2f..%2fpage.py",
        "%00",
    ],
)
def test_no_other_file_is_served(folder: Path, path: str) -> None:
    async def use(client: Client) -> None:
        assert (await client.get(f"/static/{path}")).status == 404

    with_client(page_routes(folder), use)


def test_every_response_has_a_policy_without_other_origins(folder: Path) -> None:
    async def use(client: Client) -> None:
        for path in ("/", "/static/a.js"):
            headers = (await client.get(path)).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert set(re.findall(r"'[^']*'|https?:\S*|\*", policy)) == {"'none'", "'self'"}
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"

    with_client(page_routes(folder), use)


OWN_NETWORK = re.compile(r"http://(127\.0\.0\.1|homeassistant\.local):\d+")


def test_the_page_obeys_its_own_policy() -> None:
    page = load()
    html = page["index.html"].body.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", html), "an inline script would be blocked"
    assert not re.search(r"\sstyle=|\son[a-z]+=", html), "inline style or handler"
    for name, file in page.items():
        text = file.body.decode(errors="replace")
        foreign = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        if name.startswith("words/"):  # help texts have examples
            foreign = {address for address in foreign if not OWN_NETWORK.match(address)}
        assert not foreign, f"{name} names a foreign address"
        for imported in re.findall(r"""(?:from|import)\s+["'](\.[^"']+)["']""", text):
            path = normpath(PurePosixPath(name).parent / imported)
            assert path in page, f"{name} imports {imported}, which does not exist"
        for path in re.findall(r"""["']/static/([^"'#]+)["']""", text):
            assert path in page, f"{name} names {path}, which does not exist"


def test_every_file_in_the_folder_is_served() -> None:
    assert {path for path in STATIC.rglob("*") if path.is_file()} == {
        STATIC / path for path in load()
    }
