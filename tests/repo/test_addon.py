"""The add-on of Home Assistant: its folder is complete, its options are settings of the server."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from server.config.load import load
from tests.shared import ROOT

ADDON = ROOT / "deploy/home-assistant-addon"
CONFIG: Mapping[str, Any] = json.loads((ADDON / "config.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.live


def _environment(options: Mapping[str, Any]) -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("addon_run", ADDON / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings: dict[str, str] = module.environment(options, "token-of-the-supervisor")
    return settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "earshot"
    run([str(ADDON / "make.sh"), str(made)], check=True)
    return made


def test_the_folder_holds_everything_that_the_image_is_built_from(folder: Path) -> None:
    dockerfile = (folder / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert "source/core/" in sources
    assert "run.py" in sources
    assert [source for source in sources if not (folder / source).exists()] == []
    for name in ("config.json", "DOCS.md", "CHANGELOG.md", "icon.png", "translations/en.json"):
        assert (folder / name).is_file(), name
    assert (folder / "source/web/static/index.html").is_file()
    assert not (folder / "source/tests").exists()


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    done = run([str(ADDON / "make.sh"), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"make.sh: {tmp_path} exists already\n"


def test_the_description_fits_the_release_and_its_options_are_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CONFIG["version"] == project["version"]
    assert {"name", "slug", "description", "arch"} <= set(CONFIG)
    assert CONFIG["arch"] == ["amd64", "aarch64"]
    assert CONFIG["ingress"] is True
    assert set(CONFIG["options"]) <= set(CONFIG["schema"])
    texts = json.loads((ADDON / "translations/en.json").read_text(encoding="utf-8"))
    assert set(texts["configuration"]) == set(CONFIG["schema"])
    documented = (ADDON / "DOCS.md").read_text(encoding="utf-8")
    assert [name for name in CONFIG["schema"] if f"`{name}`" not in documented] == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"language": "de", "network": True},
        {"language_model_url": "http://192.168.1.20:11434/v1", "language_model": "qwen3:4b"},
        {"language_model_url": "http://192.168.1.20:8080/v1"},
    ],
)
def test_the_options_become_settings_that_load(options: Mapping[str, Any]) -> None:
    config = load(_environment({**CONFIG["options"], **options}), text="").config
    assert config.home_assistant.ingress_port == CONFIG["ingress_port"]
    assert config.home_assistant.url == "http://supervisor/core"
    assert config.language == options.get("language", "en")
    assert config.server.host == ("0.0.0.0" if options.get("network") else "127.0.0.1")
    url = options.get("language_model_url")
    if url is None:
        assert config.llm.engine == "auto"
    else:
        assert config.llm.engine == "hybrid"
        model = config.llm.options["model"]["options"]
        assert model == {"base_url": url, "model": options.get("language_model", "auto")}
