"""Clients that are installed once for all tests of a run, because registries are slow."""

from pathlib import Path

import pytest

from tests.clients.programs import npm_program


@pytest.fixture(scope="session")
def agents_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `@openai/agents` and of the program that uses it."""
    return npm_program("agents_js", tmp_path_factory.mktemp("agents_js"))


@pytest.fixture(scope="session")
def openai_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of OpenAI's Node client and of the program that uses it."""
    return npm_program("node", tmp_path_factory.mktemp("node"))
