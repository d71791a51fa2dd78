"""The user's own table of models: what it adds and changes, and how its mistakes are reported."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from core.errors import ConfigError
from serving.models.catalogue import (
    Catalogue,
    CatalogueKind,
    built_in,
    entries,
    find_entry,
    short_name,
)
from serving.models.user_catalogue import read_catalogue, use_catalogue
from tests.shared import ROOT

NEW = '[[model]]\nname = "mine"\nrepository = "me/faster-whisper-mine"\nsize_mb = 80\n'


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "models.toml"
    use_catalogue("")


def read(file: Path, text: str) -> Catalogue:
    file.write_text(text, encoding="utf-8")
    return read_catalogue(file, built_in())


def test_a_new_model_is_known_by_its_name_repository_and_folder(file: Path) -> None:
    file.write_text(NEW, encoding="utf-8")
    use_catalogue(str(file))
    found = find_entry("me/faster-whisper-mine")
    assert found is not None
    assert (found.name, found.kind, found.format) == ("mine", "asr", "ct2")
    assert short_name("faster-whisper-mine") == "mine"
    assert len(entries()) == len(built_in().models) + 1
    use_catalogue("")
    assert find_entry("mine") is None


def test_a_known_model_changes_only_the_named_fields(file: Path) -> None:
    before = built_in().by_name["small"]
    after = read(file, '[[model]]\nname = "small"\nsuits = "the hall"\n').by_name["small"]
    assert (after.suits, after.repository, after.origin) == (
        "the hall",
        before.repository,
        before.origin,
    )


def test_an_alias_may_stand_for_an_alias(file: Path) -> None:
    text = NEW + '[aliases]\nears = "quick"\nquick = "MINE"\n'
    assert read(file, text).by_name["ears"].name == "mine"


USUAL_FORMATS = {
    "asr": "ct2",
    "embed": "text_encoder",
    "rerank": "text_encoder",
    "clip": "text_encoder",
    "endpoint": "onnx",
    "llm": "gguf",
    "speaker": "npz",
    "codec": "transformers",
}


@pytest.mark.parametrize("kind", get_args(CatalogueKind))
def test_a_kind_has_its_usual_format(file: Path, kind: str) -> None:
    found = read(file, NEW + f'kind = "{kind}"\nfile = "weights"\n').by_name["mine"]
    assert (found.kind, found.format) == (kind, USUAL_FORMATS[kind])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[model", "not TOML"),
        ('[[modle]]\nname = "x"\n', r"'modle' is unknown or no table; allowed: \[\[model\]\]"),
        ("model = 3\n", "'model' is unknown or no table"),
        ('[[model]]\nrepository = "a/b"\n', "model 1: 'name' is missing"),
        ('[[model]]\nname = "x"\n', "model 'x': 'repository' is missing"),
        (NEW + 'repo = "a/b"\n', "model 'mine': unknown field 'repo'; allowed: name, repository"),
        (NEW + 'kind = "whisper"\n', "'mine': kind: 'whisper' is not allowed; allowed: asr, embed"),
        (NEW + 'format = "pth"\n', "'mine': format: 'pth' is not allowed; allowed: ct2, openai"),
        (NEW + 'kind = "llm"\n', "'file' is missing, which the format 'gguf' needs"),
        (NEW + 'format = "onnx"\n', "format 'onnx' does not fit kind 'asr'; allowed: ct2, openai"),
        (NEW + 'format = "openai"\n', "'file' is missing, which the format 'openai' needs"),
        (NEW + 'revision = "main"\n', "revision: 'main' is not allowed; allowed: a commit, 40"),
        (NEW + 'sha256 = { "model.bin" = "12ab" }\n', "sha256: .* allowed: .* 64 hexadecimal"),
        (NEW + "size_mb = 0\n", "not TOML"),
        (NEW.replace("80", "0"), "size_mb: 0 is not allowed; allowed: a whole number from 1"),
        (NEW.replace("me/", ""), "repository: .* allowed: ORGANISATION/NAME"),
        (NEW.replace("mine", "../x"), "name: '../x' is not allowed; allowed: letters"),
        (NEW.replace("-mine", "-tiny"), "folder 'faster-whisper-tiny' is that of model 'tiny'"),
        (NEW + NEW, "model 'mine': the name is in this file twice"),
        (NEW + 'aliases = ["tiny"]\n', "model 'mine': the name 'tiny' belongs to model 'tiny'"),
        ('[aliases]\nTINY = "base"\n', "alias 'TINY': the name belongs to model 'tiny'"),
        ('[aliases]\na = "b"\n', "alias 'a': no model is called 'b'"),
        ("[aliases]\na = 3\n", "alias 'a': 3 is no text"),
        ('[aliases]\na = "b"\nb = "c"\nc = "a"\n', "cycle: a -> b -> c -> a"),
        ('[aliases]\na = "a"\n', "cycle: a -> a"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(file: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read(file, text)
    assert all(line.startswith(f"{file}: ") for line in str(caught.value).splitlines())


def test_a_file_with_one_wrong_entry_changes_nothing(file: Path) -> None:
    file.write_text(NEW + '[aliases]\na = "nothing"\n', encoding="utf-8")
    with pytest.raises(ConfigError):
        use_catalogue(str(file))
    assert find_entry("mine") is None
    with pytest.raises(ConfigError, match="No such file"):
        use_catalogue(str(file.with_name("other.toml")))


def test_the_documented_example_is_right(file: Path) -> None:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(# models\.toml\n.*?)```", text, re.DOTALL)
    catalogue = read(file, example)
    assert catalogue.by_name["kitchen"].name == "our-whisper"
    assert catalogue.by_name["our-whisper"].revision
    assert catalogue.by_name["small"].suits == "the hall"
