"""What `earshot doctor` finds, where a whole server is not needed to see it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from server import doctor
from server.config import Config
from serving.choose import Choice
from serving.offers import Offer

ODD = "tests.engines.odd_engine"


def offer(why: str, *, works: bool, fallback: Offer | None = None) -> Offer:
    options: dict[str, Any] = {} if works else {"weights": "/nowhere/model.bin"}
    return Offer("tiny", ODD, (options,), {}, why=why, fallback=fallback)


def recognisers(first: Offer, monkeypatch: pytest.MonkeyPatch) -> list[doctor.Finding]:
    of = SimpleNamespace(choice=Choice("asr", "odd", {}, "it is configured"))

    def as_said(answer: object) -> Callable[..., object]:
        return lambda *_: answer

    monkeypatch.setattr(doctor, "machine", as_said(of))
    monkeypatch.setattr(doctor, "find_offers", as_said((first,)))
    found: Any = None
    return list(doctor._recognisers(Config(), found))


def test_a_gpu_that_does_not_work_is_a_note_as_the_server_goes_to_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu = offer("on the processor", works=True)
    found = recognisers(offer("on a GPU", works=False, fallback=on_cpu), monkeypatch)
    assert [finding.verdict for finding in found] == ["ok", "note", "ok"]
    assert "no weights in /nowhere/model.bin; on the processor instead" in found[1].what
    assert "on the processor; loaded at start" in found[2].what


@pytest.mark.parametrize("fallback", [None, offer("on the processor", works=False)])
def test_a_recogniser_that_works_nowhere_fails(
    fallback: Offer | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = recognisers(offer("on a GPU", works=False, fallback=fallback), monkeypatch)
    assert found.verdict == "fail"
