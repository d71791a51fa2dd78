"""The tokens of a row never depend on its neighbours, with joining, leaving, sampling and beams."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.slots import GeneratedTokens, graph_shape
from engines.asr.whisper_torch.network.device import DeviceModel
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import (
    Wish,
    answers,
    clips,
    encoded_windows,
    mel,
    opened,
)

pytestmark = pytest.mark.live

START, NO_TIMES = 561, 567
FRAMES = (300, 400, 500, 1000)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> DeviceModel:
    return opened(checkpoints.nano(tmp_path_factory.mktemp("nano")), capacity=12)


@pytest.fixture(scope="module")
def encoded(device: DeviceModel) -> Sequence[torch.Tensor]:
    """Returns windows of four lengths."""
    pairs = zip(clips(), FRAMES, strict=True)
    return encoded_windows(device, [mel(device, pcm, frames) for pcm, frames in pairs])


@st.composite
def rows(draw: st.DrawFn) -> NewRow:
    is_timed = draw(st.booleans())
    words = draw(st.lists(st.integers(0, 559), max_size=24))
    prompt = ((565, *words) if words else ()) + ((START,) if is_timed else (START, NO_TIMES))
    temperature = draw(st.sampled_from([0.0, 0.0, 0.5, 1.0]))
    return NewRow(
        prompt=prompt,
        limit=len(prompt) + draw(st.integers(1, 24)),
        is_timed=is_timed,
        beam_size=1 if temperature else draw(st.sampled_from([1, 1, 2, 5, 8])),
        temperature=temperature,
        seed=draw(st.integers(0, 2**32 - 1)),
        suppressed=draw(st.sampled_from([None, (), (320, 258), tuple(range(280, 320))])),
    )


wishes = st.builds(Wish, clip=st.integers(0, 3), new=rows(), after=st.integers(0, 12))


def alike(one: GeneratedTokens, other: GeneratedTokens) -> bool:
    """Compares two answers; the last digits of scores may differ."""
    return (one.tokens, one.has_ended) == (other.tokens, other.has_ended) and (
        one.logprob == pytest.approx(other.logprob, abs=1e-3)
        and one.no_speech == pytest.approx(other.no_speech, abs=1e-3)
    )


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(wishes, min_size=2, max_size=6), st.dictionaries(st.integers(0, 5), st.integers(1, 9))
)
def test_answers_equal_those_of_a_row_alone(
    device: DeviceModel, encoded: Sequence[torch.Tensor], wished: list[Wish], leaves: dict[int, int]
) -> None:
    """Rows join and leave in any order; a row that left has no answer, or the one that it had
    already."""
    together = answers(device, encoded, wished, leaves)
    assert set(range(len(wished))) - set(together) <= set(leaves)
    for index, written in together.items():
        (alone,) = answers(device, encoded, [Wish(wished[index].clip, wished[index].new)]).values()
        assert alike(written, alone), wished[index]
    assert not device.rows.slot_ranges


def test_a_suppressed_token_is_never_generated(
    device: DeviceModel, encoded: Sequence[torch.Tensor]
) -> None:
    new = NewRow((START, NO_TIMES), 30)
    (free,) = answers(device, encoded, [Wish(0, new)]).values()
    banned = NewRow((START, NO_TIMES), 30, suppressed=free.tokens[:2])
    (other,) = answers(device, encoded, [Wish(0, banned)]).values()
    assert not set(free.tokens[:2]) & set(other.tokens)


def test_samples_are_determined_by_the_seed(
    device: DeviceModel, encoded: Sequence[torch.Tensor]
) -> None:
    def drawn(seed: int, temperature: float = 2.0) -> tuple[int, ...]:
        new = NewRow((START, NO_TIMES), 14, temperature=temperature, seed=seed)
        (written,) = answers(device, encoded, [Wish(0, new)]).values()
        return written.tokens

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(8)}) > 4


def test_samples_follow_the_model_s_probabilities(device: DeviceModel) -> None:
    """The test draws from three tokens with 0.6, 0.3 and 0.1, over many seeds."""
    from engines.asr.whisper_torch.batching.kv_cache import DecoderState
    from engines.asr.whisper_torch.batching.sampling import _gumbel

    count = 4000
    state = DecoderState(device.shape, device.special, 1, torch.float32, torch.device("cpu"))
    chances = torch.tensor([[0.6, 0.3, 0.1]]).log()
    found = torch.zeros(3)
    for seed in range(count):
        state.seed.fill_(seed)
        found[int((chances + _gumbel(state, chances)).argmax())] += 1
    assert (found / count).tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_long_prompt_read_at_once_gives_the_same_as_token_by_token(
    device: DeviceModel, encoded: Sequence[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = (565, *range(280, 340), START, NO_TIMES)
    wish = [Wish(1, NewRow(prompt, len(prompt) + 20, beam_size=beams)) for beams in (1, 5)]
    at_once = answers(device, encoded, wish)
    monkeypatch.setattr("engines.asr.whisper_torch.batching.slots.MAX_STEPPED_PROMPT_TOKENS", 448)
    by_token = answers(device, encoded, wish)
    assert all(alike(at_once[i], by_token[i]) for i in range(2))


def test_an_answer_that_never_ends_stops_at_its_limit(
    device: DeviceModel, encoded: Sequence[torch.Tensor]
) -> None:
    new = NewRow((START,), 448, is_timed=True, suppressed=(560,))
    (written,) = answers(device, encoded, [Wish(0, new)]).values()
    assert len(written.tokens) == 447
    assert not written.has_ended


@pytest.mark.parametrize(
    ("rows", "tokens", "encoder_positions", "expected"),
    [(1, 3, 150, (1, 64, 250)), (3, 65, 251, (4, 128, 500)), (9, 448, 1500, (12, 448, 1500))],
)
def test_steps_have_few_shapes(
    device: DeviceModel,
    rows: int,
    tokens: int,
    encoder_positions: int,
    expected: tuple[int, int, int],
) -> None:
    shape = graph_shape(device.state, rows, tokens, encoder_positions)
    assert (shape.rows, shape.tokens, shape.encoder_positions) == expected


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("int8_float32", 0.45),
        ("float16", 0.51),
        ("bfloat16", 0.51),
        ("int8_float16", 0.35),
        ("fp8_bfloat16", 0.35),
    ],
)
def test_fewer_bits_keep_the_words(
    device: DeviceModel, tmp_path_factory: pytest.TempPathFactory, kind: str, share: float
) -> None:
    """`share` is the share of the memory. Storage for GPUs gives the same on a processor,
    slowly."""
    folder = checkpoints.nano(tmp_path_factory.mktemp("nano8"))
    small = opened(folder, compute_type=kind)
    assert small.weights.nbytes < share * device.weights.nbytes
    wish = [Wish(i, NewRow((START, NO_TIMES), 30)) for i in range(4)]
    pairs = list(zip(clips(), FRAMES, strict=True))
    exact = answers(device, encoded_windows(device, [mel(device, *pair) for pair in pairs]), wish)
    kept = answers(small, encoded_windows(small, [mel(small, *pair) for pair in pairs]), wish)
    assert [kept[i].tokens for i in range(4)] == [exact[i].tokens for i in range(4)]
