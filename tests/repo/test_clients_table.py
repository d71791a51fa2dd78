"""`docs/clients.md` names tests that exist, and versions of clients that they install."""

import json
import re
from pathlib import Path

import pytest

from tests.shared import ROOT

PAGE = ROOT / "docs" / "clients.md"
COLUMNS = ["client", "version", "door", "seen by", "what does not work, and whose fault"]
FEWEST = 30
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)\)")
_BY_HAND = re.compile(r"by hand, \d{4}-\d\d-\d\d")
_NAME = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    """Returns the cells of every row of the page's tables, without heads."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row != COLUMNS and not row[0].startswith("---")]


ROWS = rows()


def pinned(file: Path, package: str) -> str | None:
    """Returns the version of a package in a lock file, `package.json` or Python file; None if it
    is not there."""
    text = file.read_text(encoding="utf-8")
    if file.name == "package.json":
        version: str | None = json.loads(text)["dependencies"].get(package)
        return version
    found = re.search(
        rf"^\W*{re.escape(package)}==([\w.]+)", text, flags=re.MULTILINE | re.IGNORECASE
    )
    return found[1] if found else None


def test_the_page_has_enough_clients() -> None:
    assert len(ROWS) >= FEWEST
    assert all(len(row) == len(COLUMNS) and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_client_is_run_by_a_test_or_was_run_by_hand(row: list[str]) -> None:
    _, version, _, seen_by, _ = row
    test, lock = _LINK.fullmatch(seen_by), _LINK.fullmatch(version)
    if test is None:
        assert _BY_HAND.fullmatch(seen_by), seen_by
        assert lock is None, "no test installs this version"
        return
    file = (PAGE.parent / test[2]).resolve()
    assert file.is_relative_to(ROOT / "tests")
    assert re.search(r"^def test_", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if lock is not None:
        package = _NAME.match(row[0])
        assert package, "the row begins with the package's name in backquotes"
        assert pinned((PAGE.parent / lock[2]).resolve(), package[1]) == lock[1]


def test_every_program_of_a_foreign_client_has_a_row() -> None:
    folders = {
        path.parent.name
        for name in ("requirements*.txt", "package.json")
        for path in (ROOT / "tests/clients").glob(f"*/{name}")
    }
    named = {Path(link[2]).parent.name for row in ROWS for link in _LINK.finditer(row[1])}
    tools = {"axe", "firefox"}  # they look at the page; their client is the browser
    assert folders - tools <= named
