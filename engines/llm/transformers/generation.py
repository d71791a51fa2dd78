"""Generates answers token by token with Hugging Face's library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import ContextLengthExceeded, EngineError
from engines.llm.transformers.settings import NAME, Settings
from engines.runtime.sampling import SamplingParameters

PREFILL_TOKENS = 256
"Tokens of a prompt per step. Between steps other answers continue, and cancellations are read."
MIN_SHARED_TOKENS = 16
"Shortest common beginning of two prompts, in tokens, for which the KV cache is reused."


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Prompt, limits and sampling options of one answer. None stands for the model's own value."""

    messages: Sequence[Mapping[str, Any]]
    "Messages as the chat template reads them."
    tools: Sequence[Mapping[str, Any]]
    max_tokens: int
    "Longest answer, in tokens."
    context_tokens: int
    "Size of the context window, in tokens."
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    has_reasoning: bool = False
    "False: the chat template is asked to leave thoughts out, if it can."


@dataclass(slots=True)
class PromptCacheEntry:
    """The tokens of a prompt or answer, and the KV cache that the model has computed for them."""

    tokens: list[int]
    cache: Any


class TransformersModel:
    """Weights, tokenizer and chat template of a model, and the KV caches of the latest prompts."""

    def __init__(self, settings: Settings) -> None:
        """Loads the model, which blocks for seconds to minutes.

        Raises EngineError without a chat template, and all that the library raises.
        """
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if settings.threads:
            torch.set_num_threads(settings.threads)
        folder, gguf_file = str(settings.folder.resolve()), settings.gguf_file()
        # A GGUF file holds configuration, tokenizer and weights, which are converted to `dtype`.
        source: dict[str, Any] = {} if gguf_file is None else {"gguf_file": gguf_file.name}
        self.device = settings.device
        if settings.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        is_default = settings.dtype == "auto" and self.device == "cpu"
        dtype = "float32" if is_default else settings.dtype
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **source)
        if not self.tokenizer.chat_template:
            raise EngineError("llm", NAME, "the model has no chat template")
        source["use_safetensors"] = True if gguf_file is None else None
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=dtype, **source
        )
        self.network = loaded.eval().to(self.device)
        self.end_tokens = _end_token_ids(self.network.generation_config, self.tokenizer)
        "Ids of the tokens that end an answer."
        self._prompt_caches: list[PromptCacheEntry] = []
        "Caches of the latest prompts, the newest first."
        self._max_prompt_caches = settings.at_once
        "Number of caches that are kept."

    @property
    def has_tools(self) -> bool:
        """True if the chat template has a place for tools."""
        return "tools" in str(self.tokenizer.chat_template)

    def prompt(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]],
        *,
        has_reasoning: bool = True,
    ) -> list[int]:
        """Returns the tokens of the prompt.

        has_reasoning: False asks the chat template to leave thoughts out. Templates use one of two
        names for this.
        """
        thoughts = {} if has_reasoning else {"enable_thinking": False, "thinking": False}
        text = self.tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=False,
            **thoughts,
        )
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def take_cache(self, tokens: Sequence[int]) -> PromptCacheEntry:
        """Removes and returns the cache with the longest common beginning with `tokens`.

        It is cropped to that beginning; an empty one is returned if the beginning is too short. The
        last token of a prompt is never cached, because its scores must be computed again.
        """
        from transformers import DynamicCache

        shared = [_common_prefix_tokens(kept.tokens, tokens[:-1]) for kept in self._prompt_caches]
        longest = max(shared, default=0)
        if longest < MIN_SHARED_TOKENS:
            return PromptCacheEntry([], DynamicCache(config=self.network.config))
        found = self._prompt_caches.pop(shared.index(longest))
        if surplus := len(found.tokens) - longest:
            found.cache.crop(-surplus)
        return PromptCacheEntry(found.tokens[:longest], found.cache)

    def store_cache(self, computed: PromptCacheEntry) -> None:
        """Keeps a cache for the next turn, whose prompt begins with the same tokens.

        Caches that `take_cache` may be unable to crop are not kept.
        """
        from transformers.cache_utils import DynamicLayer

        # Subclasses, such as layers with a sliding window, cannot always be cropped.
        if all(type(layer) is DynamicLayer for layer in computed.cache.layers):
            self._prompt_caches = [computed, *self._prompt_caches][: self._max_prompt_caches]

    def scores(self, computed: PromptCacheEntry, tokens: list[int]) -> Any:
        """Computes `tokens`, adds them to `computed` and returns the scores of the next token.

        The scores are a tensor of shape (vocabulary,).
        """
        import torch

        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.device)
            written = self.network(
                input_ids=ids, past_key_values=computed.cache, use_cache=True, logits_to_keep=1
            )
        computed.tokens += tokens
        return written.logits[0, -1]


@dataclass(slots=True)
class IncrementalDetokenizer:
    """Converts tokens to text as soon as no later token can change that text."""

    tokenizer: Any
    tokens: list[int] = field(default_factory=list)
    _context_start: int = 0
    "Index of the first token that is decoded as context of the next ones."
    _returned_tokens: int = 0
    "Number of tokens whose text was returned."

    def push(self, token: int) -> str:
        """Takes the next token and returns the text that is complete now."""
        self.tokens.append(token)
        return self._next_text(is_last=False)

    def end(self) -> str:
        """Returns the rest of the text, such as an incomplete character."""
        return self._next_text(is_last=True)

    def _next_text(self, *, is_last: bool) -> str:
        """Returns the text since the last call.

        The tokens of the last text are decoded again, because a token's text (a space in front)
        depends on the token before it.
        """
        before = self._decode(self.tokens[self._context_start : self._returned_tokens])
        now = self._decode(self.tokens[self._context_start :])
        if len(now) <= len(before) or (now.endswith("\ufffd") and not is_last):
            return ""
        self._context_start, self._returned_tokens = self._returned_tokens, len(self.tokens)
        return now[len(before) :]

    def _decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class TokenGeneration:
    """Generates one answer. Call `step` until `is_over`, then `finish`."""

    def __init__(self, model: TransformersModel, request: GenerationRequest) -> None:
        """Raises ContextLengthExceeded if the prompt does not fit, and the template's errors."""
        tokens = model.prompt(request.messages, request.tools, has_reasoning=request.has_reasoning)
        self.input_tokens = len(tokens)
        room = request.context_tokens - len(tokens)
        if room < 1:
            why = f"a prompt of {len(tokens)} tokens; the model takes {request.context_tokens}"
            raise ContextLengthExceeded("llm", NAME, why)
        self._max_tokens = min(request.max_tokens, room)
        self._model, self._text = model, IncrementalDetokenizer(model.tokenizer)
        self._sampling = SamplingParameters.of(model.network.generation_config, request)
        self._computed = model.take_cache(tokens)
        self.reused_tokens = len(self._computed.tokens)
        "Number of tokens of the prompt that a kept cache already had."
        self._next_tokens = tokens[self.reused_tokens :]
        "Tokens to compute next: the rest of the prompt, later the newest token of the answer."
        self.is_over = False

    @property
    def output_tokens(self) -> int:
        """Number of tokens of the answer so far."""
        return len(self._text.tokens)

    def step(self) -> str:
        """Computes a part of the prompt, or one token of the answer. Returns the new text."""
        now, self._next_tokens = (
            self._next_tokens[:PREFILL_TOKENS],
            self._next_tokens[PREFILL_TOKENS:],
        )
        scores = self._model.scores(self._computed, now)
        if self._next_tokens:
            return ""
        token = self._sampling.pick(scores, self._computed.tokens)
        if token in self._model.end_tokens:
            self.is_over = True
            return self._text.end()
        text = self._text.push(token)
        if self.output_tokens >= self._max_tokens:
            self.is_over = True
            return text + self._text.end()
        self._next_tokens = [token]
        return text

    def finish(self) -> None:
        """Ends an answer that is over or aborted, and keeps its cache for the next turn."""
        self._model.store_cache(self._computed)


def _end_token_ids(config: Any, tokenizer: Any) -> set[int]:
    configured = config.eos_token_id
    tokens = set(configured) if isinstance(configured, list) else {configured}
    return (tokens | {tokenizer.eos_token_id}) - {None}


def _common_prefix_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns the length of the common beginning, in tokens."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))
