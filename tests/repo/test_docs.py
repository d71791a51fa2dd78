"""The documents: indexes are complete, links lead somewhere, and the names in them exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.repo.files import PACKAGES, repository_files
from tests.shared import ROOT

pytestmark = pytest.mark.live

DOCS = ROOT / "docs"
DECISIONS = DOCS / "adr"

MARKDOWN_COLUMNS = 120
"Two windows beside each other show it. Tables, code, lone links and lone commands are exempt."

PERFORMANCE_LINES = 150
"The page of newest figures is read at a glance; the diary is in docs/history."

_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
_FILE = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests)/[\w./-]+(?:\.py|\.toml|\.js|\.c|\.h|/))`")
_FUNCTION = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w./-]+\.py):([A-Za-z_][\w.]*)`")
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)


def _pages() -> list[Path]:
    """Every Markdown file of the repository, relative to its root."""
    return [path for path in repository_files() if path.suffix == ".md"]


def _prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def _is_exempt(line: str) -> bool:
    """Whether a line is a row of a table, or has nothing but one link, command or word."""
    text = re.sub(r"^[-*+] +", "", line.strip())
    return text.startswith("|") or " " not in _CODE.sub("", _LINK.sub("", text)).strip()


def _links(page: Path) -> Iterator[tuple[str, str]]:
    """Target and anchor of every link to a file of the repository."""
    for target in _LINK.findall(_prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


@cache
def _definitions(file: str) -> frozenset[str]:
    """Functions and classes of a module, and the methods of the classes as `CLASS.NAME`."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def _anchors(page: Path) -> set[str]:
    """The anchors that forges make of a page's headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_prose(page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        kept = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = sum(1 for one in found if one == kept or re.fullmatch(f"{kept}-[0-9]+", one))
        found.add(f"{kept}-{number}" if number else kept)
    return found


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    wrong = []
    for page in _pages():
        for path, anchor in _links(page):
            target = (ROOT / page.parent / path).resolve() if path else ROOT / page
            is_page = target.suffix == ".md" and target.is_file()
            if not target.exists() or (anchor and is_page and anchor not in _anchors(target)):
                wrong.append(f"{page}: {path}#{anchor}" if anchor else f"{page}: {path}")
    assert wrong == []


def test_every_module_that_a_page_runs_exists() -> None:
    run = re.compile(rf"-m ((?:{'|'.join(PACKAGES)})(?:\.\w+)*)")
    missing: list[str] = []
    for page in _pages():
        if (ROOT / page).is_relative_to(DOCS / "history"):
            continue
        for name in run.findall((ROOT / page).read_text(encoding="utf-8")):
            place = ROOT / name.replace(".", "/")
            if not (place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()):
                missing.append(f"{page}: python -m {name}")
    assert not missing


def test_every_file_that_a_page_names_exists() -> None:
    """The diary in docs/history names files as they were called on its days."""
    missing = [
        f"{page}: {name}"
        for page in _pages()
        if page.parts[:2] != ("docs", "history")
        for name in _FILE.findall(_prose(page))
        if "KIND" not in name and not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_function_that_a_page_names_exists() -> None:
    """Pages name a function or a class as `FILE.py:NAME`, a method as `FILE.py:CLASS.NAME`."""
    named = {
        (file, name): page
        for page in _pages()
        if page.parts[:2] != ("docs", "history")
        for file, name in _FUNCTION.findall(_prose(page))
    }
    assert len(named) > 100
    missing = [
        f"{page}: {file}:{name}"
        for (file, name), page in named.items()
        if not (ROOT / file).is_file() or name not in _definitions(file)
    ]
    assert missing == []


def test_the_counts_of_hops_and_files_match_the_list() -> None:
    """Each numbered line is a hop; the functions that it calls stand in the same line."""
    page = _prose(Path("docs/architecture.md"))
    hops = re.findall(r"^(\d+)\. `([\w./]+\.py):", page, re.MULTILINE)
    assert [int(number) for number, _ in hops] == [*range(1, len(hops) + 1)]
    files = {file for _, file in hops}
    of_pipeline = sum(file.startswith("pipeline/") for file in files)
    assert f"**{len(hops)} hops in {len(files)} files**, {of_pipeline} of them in" in page
    lines = re.findall(r"^\d+\. .*\n(?:    .*\n)*", page, re.MULTILINE)
    named = set(_FUNCTION.findall("".join(lines)))
    assert f"**{len(named)} functions in {len({file for file, _ in named})} files**" in page


def test_the_architecture_names_every_folder() -> None:
    page = _prose(Path("docs/architecture.md"))
    folders = {f"`{package}`" for package in PACKAGES}
    stages = (ROOT / "pipeline").glob("[!_.]*/__init__.py")
    folders |= {f"`{stage.parent.name}/`" for stage in stages}
    assert {one for one in folders if f"| {one} |" not in page} == set()


def test_lines_are_at_most_120_columns_wide() -> None:
    wide = [
        f"{page}: {line[:60]}..."
        for page in _pages()
        for line in _prose(page).splitlines()
        if len(line) > MARKDOWN_COLUMNS and not _is_exempt(line)
    ]
    assert wide == []


def test_the_index_of_decisions_has_each_decision_with_its_title() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| (\[.*?\]\(.*?\)) \|", index, re.MULTILINE))
    expected = {}
    for path in DECISIONS.glob("[0-9]*.md"):
        number, _, title = path.read_text(encoding="utf-8").split("\n", 1)[0].partition(". ")
        assert number == f"# {int(path.name[:4])}", f"{path.name} begins with {number!r}"
        expected[number.removeprefix("# ")] = f"[{title}]({path.name})"
    assert rows == expected


def test_the_index_of_decisions_is_ordered_by_number() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", index, re.MULTILINE)]
    assert len(numbers) > 40
    assert numbers == sorted(set(numbers))


def test_the_page_of_performance_figures_stays_short() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= PERFORMANCE_LINES


def test_every_page_is_in_the_index() -> None:
    index = Path("docs/README.md")
    linked = {(ROOT / index.parent / path).resolve() for path, _ in _links(index)}
    pages = [page for page in _pages() if page != index and page.parts[:2] != ("docs", "adr")]
    assert [str(page) for page in pages if (ROOT / page).resolve() not in linked] == []


def test_the_index_has_three_parts() -> None:
    headings = _HEADING.findall(_prose(Path("docs/README.md")))
    assert headings == ["Documentation", "Use", "Operate", "Develop"]
