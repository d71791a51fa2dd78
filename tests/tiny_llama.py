"""A real Llama of 0.4 M random weights, with its tokenizer and chat template, made in a second.

It answers anything with lower-case nonsense, at any temperature, and never ends by itself: it fills
`max_tokens`. It suits tests of streaming, limits and aborting, for which the meaning does not
matter.

`python tests/tiny_llama.py FOLDER` for environments without our other packages; needs torch and
transformers.
"""

import string
import sys
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 2048
END, UNKNOWN = "<|end|>", "<|unknown|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
SPOKEN = string.ascii_lowercase + " "
"The letters it writes: one token per character, so that any cut of its output is text."

CHAT_TEMPLATE = """
{%- if tools %}<|system|>Tools: {{ tools | tojson }}<|end|>{% endif %}
{%- for message in messages %}<|{{ message.role }}|>{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""


def write_tiny_llama(folder: Path) -> None:
    """Writes model, tokenizer and template as `from_pretrained` and vLLM read them. Always the same
    weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    _model(tokenizer).save_pretrained(folder)


def _tokenizer() -> Any:
    """Returns a tokenizer with one token per byte, so every text can be encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((END, UNKNOWN, *ROLES, *letters))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=list(ROLES),
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def _model(tokenizer: Any) -> Any:
    """Returns the model. Its heads have 64 numbers, which every attention kernel supports."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(20_26)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # Every other token scores 0, and the best of 27 random scores is far above that, at any
        # temperature.
        head = model.lm_head.weight
        head.zero_()
        spoken = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(SPOKEN))
        head[spoken] = 3 * torch.randn(len(spoken), head.shape[1])
    return model


if __name__ == "__main__":
    write_tiny_llama(Path(sys.argv[1]))
