"""The add-on of Home Assistant: its folder is complete, its options are settings of the server."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from subprocess import run
from typing import Any

import jsonschema
import pytest

from server.config.load import load
from tests.shared import ROOT

ADDON = ROOT / "deploy/home-assistant-addon"
CONFIG: Mapping[str, Any] = json.loads((ADDON / "config.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.live


def _one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


FLAGS = (
    *(
        "apparmor",
        "audio",
        "auth_api",
        "docker_api",
        "full_access",
        "hassio_api",
        "homeassistant_api",
    ),
    *("host_dbus", "host_ipc", "host_network", "host_pid", "ingress", "ingress_stream", "init"),
    *("journald", "panel_admin", "realtime", "stdin", "tmpfs", "udev", "usb", "video"),
)
OPTION_TYPES = r"str|bool|int|float|email|url|password|port|list\(.+\)|match\(.+\)"
FOLDERS = ("addon_config", "all_addon_configs", "backup", "data", "homeassistant_config", "media")
TEXT, NAMES = {"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "version", "slug", "description", "arch"],
    "properties": {
        **{name: {"type": "boolean"} for name in FLAGS},
        **dict.fromkeys(("name", "description", "panel_title", "image"), TEXT),
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "slug": {"type": "string", "pattern": r"^[-_.A-Za-z0-9]+$"},
        "url": {"type": "string", "pattern": "^https?://"},
        "arch": {"type": "array", "minItems": 1, "items": _one_of("aarch64", "amd64")},
        "startup": _one_of("initialize", "system", "services", "application", "once"),
        "boot": _one_of("auto", "manual", "manual_only"),
        "stage": _one_of("stable", "experimental", "deprecated"),
        "backup": _one_of("hot", "cold"),
        "backup_exclude": NAMES,
        "ingress_port": {"type": "integer", "minimum": 0, "maximum": 65535},
        "ingress_entry": TEXT,
        "panel_icon": {"type": "string", "pattern": "^mdi:[a-z0-9-]+$"},
        "timeout": {"type": "integer", "minimum": 10, "maximum": 300},
        "map": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type"],
                "properties": {
                    "type": _one_of(*FOLDERS, "share", "ssl"),
                    "read_only": {"type": "boolean"},
                    "path": {"type": "string", "pattern": "^/."},
                },
            },
        },
        "ports": {
            "type": "object",
            "patternProperties": {r"^\d+/(tcp|udp)$": {"type": ["integer", "null"]}},
            "additionalProperties": False,
        },
        "options": {"type": "object"},
        "schema": {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": rf"^({OPTION_TYPES})\??$"},
        },
    },
}
"""The fields of an add-on's `config.json` that Home Assistant documents, without those that open
its hardware (https://developers.home-assistant.io/docs/add-ons/configuration)."""

TYPES: Mapping[str, type] = {"str": str, "bool": bool, "url": str}
"Type of an option in the add-on's schema -> type of its value."


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


def test_home_assistant_accepts_the_description() -> None:
    jsonschema.validate(CONFIG, SCHEMA)
    for name, kind in CONFIG["schema"].items():
        if name in CONFIG["options"]:
            assert isinstance(CONFIG["options"][name], TYPES[kind]), name
        else:
            assert kind.endswith("?"), f"{name} is needed and has no default"


@pytest.mark.parametrize(
    "wrong",
    [{"arch": ["armv7"]}, {"ingress": "yes"}, {"map": ["config"]}, {"ingres": True}, {"slug": ""}],
)
def test_a_wrong_description_is_noticed(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**CONFIG, **wrong}, SCHEMA)


def test_the_description_fits_the_release_and_its_options_are_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CONFIG["version"] == project["version"]
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
