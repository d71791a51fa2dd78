"""The server's embeddings of official weights are those of sentence-transformers."""

import fcntl
import json
import os
import subprocess
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from engines.llm.vllm.environment import python_of
from server.commands.engines.pip import pip
from tests.engines.llm.vllm.installation import STATE, installed
from tests.real_models import minilm
from tests.server.process import TIMEOUT_S, serving

pytestmark = [pytest.mark.real, pytest.mark.late]

PROGRAM = Path(__file__).parent / "sentence_transformers"
LIBRARIES = STATE / "sentence-transformers"
"Folder with sentence-transformers. Its torch and transformers are those of vLLM's environment."

REFERENCE_TIMEOUT_S = 300.0
TOLERANCE = 1e-5

TEXTS = [
    "the kettle is on",
    "Water is boiling.",
    "Ünïcödé, 中文 and 🙂 become tokens, too",
    "a " * 200,
    *(f"sentence {number} of a longer list, " * (number % 9 + 1) for number in range(20)),
]
"Texts of 6 to 202 tokens, more than fit into one call of the engine."


def _reference(model: Path) -> list[list[float]]:
    """Returns the vectors that sentence-transformers computes."""
    python = python_of(installed())
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    with (STATE / "sentence-transformers.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (LIBRARIES / "sentence_transformers").is_dir():
            options = ("--no-deps", "--target", str(LIBRARIES))
            requirements = str(PROGRAM / "requirements.txt")
            pip(python, "install", *options, "-r", requirements, report_progress=print)
    done = subprocess.run(
        [str(python), str(PROGRAM / "vectors.py"), str(model)],
        input=json.dumps(TEXTS),
        env={**os.environ, "PYTHONPATH": str(LIBRARIES), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=REFERENCE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    vectors: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return vectors


def test_embeddings_equal_those_of_sentence_transformers(tmp_path: Path) -> None:
    model = minilm()
    expected = np.array(_reference(model))
    settings = {"EARSHOT_PATHS__MODELS_DIR": str(model.parent)}
    body = {"model": "all-MiniLM-L6-v2", "input": TEXTS}
    with serving(tmp_path, settings=settings) as server:
        answer = httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    vectors = np.array([one["embedding"] for one in answer.json()["data"]])
    assert vectors.shape == expected.shape == (len(TEXTS), 384)
    largest = np.abs(vectors - expected).max()
    print(f"largest difference: {largest:.1e}")
    assert largest <= TOLERANCE
