"""Reads the language model of a checkpoint, a GPT-2, with transformers."""

from pathlib import Path
from typing import Any

from core.errors import EngineError
from engines.tts.indri.frames import codebook_at, may_stop
from engines.tts.indri.settings import NAME
from engines.tts.indri.token_layout import CODEBOOK_SIZE, TokenLayout
from engines.tts.token_model.backend import AllowedIds, IdOrder
from engines.tts.token_model.network import Layer, Layers, Matrix, TokenNetwork
from engines.tts.token_model.torch_backend import TorchBackend

EXPECTED = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"Values of config.json for which the steps of `TokenNetwork` are right."


def load_backend(
    folder: Path, layout: TokenLayout, *, slots: int, device: str, dtype: str
) -> TorchBackend:
    """Reads a checkpoint, which blocks for seconds. Raises EngineError for a network of another
    form, and all that transformers raises."""
    from transformers import GPT2LMHeadModel

    model: Any = GPT2LMHeadModel.from_pretrained(
        str(folder.resolve()), local_files_only=True, dtype=dtype, use_safetensors=True
    )
    network = network_of(model.eval().to(device))
    return TorchBackend(network, frame_order(layout), slots, name=f"tts.{NAME}")


def frame_order(layout: TokenLayout) -> IdOrder:
    """Returns the order of the ids: one codebook after the other, and an end between frames."""

    def allowed(position: int) -> AllowedIds:
        first = layout.first_code(codebook_at(position))
        return AllowedIds(first, CODEBOOK_SIZE, layout.stop if may_stop(position) else None)

    return allowed


def network_of(model: Any) -> TokenNetwork:
    """Takes the weights of transformers' `GPT2LMHeadModel`. Raises EngineError for a network of
    another form."""
    config = model.config
    for name, value in EXPECTED.items():
        if getattr(config, name, value) != value:
            found = f"{name} is {getattr(config, name)!r}; allowed: {value!r}"
            raise EngineError("tts", NAME, f"config.json: {found}")
    body = model.transformer
    return TokenNetwork(
        Layers(
            tuple(_layer(block) for block in body.h),
            _matrix(body.ln_f),
            config.n_head,
            config.layer_norm_epsilon,
            "tanh",
        ),
        body.wte.weight.detach(),
        body.wpe.weight.detach(),
        model.lm_head.weight.detach(),
    )


def _layer(block: Any) -> Layer:
    return Layer(
        _matrix(block.ln_1),
        _transposed(block.attn.c_attn),
        _transposed(block.attn.c_proj),
        _matrix(block.ln_2),
        _transposed(block.mlp.c_fc),
        _transposed(block.mlp.c_proj),
    )


def _matrix(module: Any) -> Matrix:
    return module.weight.detach(), module.bias.detach()


def _transposed(module: Any) -> Matrix:
    """Returns the weights of a `Conv1D`, which is a matrix that is stored the other way round."""
    return module.weight.detach().T.contiguous(), module.bias.detach()
