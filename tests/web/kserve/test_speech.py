"""Requests for recognition: prefixes, lengths and places in a sequence."""

from dataclasses import replace

import numpy as np
import pytest

from core.errors import RequestError
from engines.base import AsrInfo, AsrOptions
from web.kserve.speech import SequenceStep, prefix_options, sequence_step, speech_items
from web.kserve.tensors import InferRequest, Tensor, tensor_of_values

USUAL = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
PLAIN = AsrInfo(
    name="x", model="x", languages=("en", "de"), max_batch=1, is_incremental=False, tells_noise=True
)
WHISPER = replace(PLAIN, supports=("prefix", "task"))
ENGLISH = replace(PLAIN, languages=("en",), supports=("prefix",))


@pytest.mark.parametrize(
    ("prefix", "info", "options"),
    [
        (None, WHISPER, AsrOptions()),
        ("", WHISPER, AsrOptions(language="en")),
        (USUAL, WHISPER, AsrOptions(prefix=USUAL)),
        (USUAL, ENGLISH, AsrOptions(prefix="<|startoftranscript|><|notimestamps|>")),
        (USUAL, PLAIN, AsrOptions(language="en")),
        (
            f"<|startofprev|>Prynne{USUAL.replace('en', 'de')}",
            PLAIN,
            AsrOptions(language="de", prompt="Prynne"),
        ),
        (
            "<|startoftranscript|><|de|><|translate|>",
            PLAIN,
            AsrOptions(language="de", task="translate"),
        ),
    ],
)
def test_a_prefix_becomes_options(prefix: str | None, info: AsrInfo, options: AsrOptions) -> None:
    assert prefix_options(prefix, info) == options


@pytest.mark.parametrize("prefix", ["hello", f"{USUAL} Yes,", USUAL.replace("en", "fr")])
def test_what_a_recogniser_cannot_do_is_refused(prefix: str) -> None:
    with pytest.raises(RequestError, match="TEXT_PREFIX"):
        prefix_options(prefix, PLAIN)


def request(**inputs: Tensor) -> InferRequest:
    return InferRequest("infer_bls", inputs=inputs)


def sound(rows: int, samples: int, value: float = 0.5) -> Tensor:
    values = np.full(rows * samples, value, np.float32)
    return Tensor("WAV", "FP32", (rows, samples), values)


def test_the_length_counts_and_not_the_shape() -> None:
    lengths = tensor_of_values("WAV_LENS", "INT32", [2, 1], [[3], [0]])
    texts = tensor_of_values("TEXT_PREFIX", "BYTES", [2, 1], [[USUAL], [""]])
    first, second = speech_items(request(WAV=sound(2, 8), WAV_LENS=lengths, TEXT_PREFIX=texts))
    assert first.pcm.tolist() == [16384] * 3
    assert (len(second.pcm), first.prefix, second.prefix) == (0, USUAL, "")
    (whole,) = speech_items(request(WAV=sound(1, 8, 2.0)))
    assert whole.pcm.tolist() == [32767] * 8  # too loud: clipped
    assert whole.prefix is None


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({}, "Missing input 'WAV'"),
        ({"WAV": sound(65, 1)}, "1 to 64"),
        ({"WAV": sound(0, 1)}, "1 to 64"),
        ({"WAV": sound(1, 1, np.nan)}, "finite"),
        ({"WAV": tensor_of_values("WAV", "FP64", [1, 1], [1])}, "must be FP32"),
        (
            {"WAV": sound(1, 4), "WAV_LENS": tensor_of_values("WAV_LENS", "INT32", [1], [5])},
            "not 0 to 4",
        ),
        (
            {"WAV": sound(1, 4), "WAV_LENS": tensor_of_values("WAV_LENS", "INT32", [2], [1, 1])},
            "2 numbers for 1",
        ),
        (
            {"WAV": sound(1, 4), "DECODER_INPUT_IDS": sound(1, 1)},
            "Unknown input 'DECODER_INPUT_IDS'",
        ),
        (
            {"WAV": sound(1, 4), "TEXT_PREFIX": Tensor("TEXT_PREFIX", "BYTES", (1,), (b"\xff",))},
            "not UTF-8",
        ),
    ],
)
def test_wrong_inputs_are_refused(inputs: dict[str, Tensor], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        speech_items(request(**inputs))


def test_a_sequence_has_an_id() -> None:
    assert sequence_step(InferRequest("m")) is None
    parameters = {"sequence_id": 10086, "sequence_start": True}
    assert sequence_step(InferRequest("m", parameters=parameters)) == SequenceStep(
        10086, is_start=True, is_end=False
    )
    with pytest.raises(RequestError, match="sequence_id"):
        sequence_step(InferRequest("m", parameters={"sequence_id": 1.5}))
