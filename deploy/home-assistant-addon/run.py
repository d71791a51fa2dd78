"""Starts Earshot in Home Assistant's add-on, with the settings of the add-on's page.

State lies in /data, which Home Assistant keeps and saves: key, certificate and devices in
/data/state, weights in /data/models. A file /config/earshot.toml has every other setting; what is
set here overrides it.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPTIONS = Path("/data/options.json")
SETTINGS = Path("/config/earshot.toml")


def environment(options: Mapping[str, Any], supervisor_token: str) -> dict[str, str]:
    """Returns the settings of the server as environment variables."""
    settings = {
        "EARSHOT_STATE_DIR": "/data/state",
        "EARSHOT_MODELS_DIR": "/data/models",
        "EARSHOT_HOST": "0.0.0.0" if options.get("network") else "127.0.0.1",
        "EARSHOT_LANGUAGE": str(options.get("language") or "en"),
        "EARSHOT_HOME_ASSISTANT__INGRESS_PORT": "8099",
        "EARSHOT_HOME_ASSISTANT__URL": "http://supervisor/core",
        "EARSHOT_HOME_ASSISTANT__TOKEN": supervisor_token,
    }
    if url := options.get("language_model_url"):
        model = {"base_url": url, "model": options.get("language_model") or "auto"}
        inner = ", ".join(f"{name} = {json.dumps(value)}" for name, value in model.items())
        settings["EARSHOT_LLM__ENGINE"] = "hybrid"
        settings["EARSHOT_LLM__OPTIONS__MODEL"] = (
            f'{{ engine = "openai", options = {{ {inner} }} }}'
        )
    return settings


def main() -> None:
    """Fetches a Whisper that fits the machine, unless it is switched off; starts the server."""
    options = json.loads(OPTIONS.read_text(encoding="utf-8"))
    token = os.environ.pop("SUPERVISOR_TOKEN", "")
    os.environ.update(environment(options, token))
    for folder in ("/data/state", "/data/models"):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    config = ("--config", str(SETTINGS)) if SETTINGS.exists() else ()
    if options.get("models", True):
        pull = ("earshot", "models", "pull", "auto", "--best-effort", *config)
        subprocess.run(pull, check=False)
    os.execvp("earshot", ("earshot", "serve", *config))


if __name__ == "__main__":
    main()
