"""Runs a text encoder: tokenizes texts and computes the network's output for each."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import EngineError
from engines.runtime.text_encoder.bert_graph import build_graph
from engines.runtime.text_encoder.folder import TOKENIZER_FILE, TextModelKind, read_folder

Floats = npt.NDArray[np.float32]
"Array of float32 of any shape."

MAX_PADDING_TOKENS = 16
"""Largest number of padding tokens in a run of the network. Padding costs as much as words, and a
further run costs about as much as this number of tokens, because it reads all weights again."""

MAX_CALL_TOKENS = 512
"""Largest number of tokens in one run of the network, unless a single text has more. In a run of
2048 or more each token took a quarter longer: the buffers between two operators leave the
processor's caches, and the allocator returns them to the system, which clears each page again for
the next operator."""

MAX_TRIAL_TOKENS = 512
"Largest number of tokens of the text that tests a loaded model: MiniLM takes some 0.1 s for it."

DEFAULT_THREADS = 4
"Largest number of threads by default: more threads hardly speed up a short text."


class Tokens:
    """One tokenized input."""

    __slots__ = ("ids", "types")

    def __init__(self, ids: Sequence[int], types: Sequence[int] | None = None) -> None:
        self.ids, self.types = ids, types or [0] * len(ids)

    def __len__(self) -> int:
        return len(self.ids)


class TextEncoder:
    """A loaded model: its tokenizer and its network."""

    def __init__(self, path: str, kind: TextModelKind, threads: int) -> None:
        """Loads the model. `path`: its folder. `kind`: the expected kind. `threads`: threads of the
        network; 0: as many as there are cores, at most DEFAULT_THREADS. Raises EngineError if a
        file is damaged or contradicts another one, or if the model is of another kind."""
        self.folder = read_folder(Path(path))
        if self.folder.kind != kind:
            raise self._error(f"is a model for {self.folder.kind}, not for {kind}")
        self._tokenizer = self._read_tokenizer()
        try:
            network = self.folder.onnx_file or build_graph(self.folder)
            self._session = open_session(network, self.folder.path, threads)
        except library_errors() as error:
            raise self._error(
                f"{self.folder.weights_file.name} cannot be loaded: {type(error).__name__}"
            ) from error
        self._inputs = {node.name for node in self._session.get_inputs()}
        outputs = [node.name for node in self._session.get_outputs()]
        known = ("last_hidden_state", "token_embeddings", "logits")
        self._output = next((name for name in known if name in outputs), outputs[0])

    def check(self, reduce: "RowReducer") -> None:
        """Tests the model with one long text of the token with the highest id. `reduce`: as for
        `run`.

        Raises EngineError if the network fails, or gives a row that does not fit the folder's
        files. Without this test, some texts would fail later or give wrong vectors.
        """
        info, file = self.folder.info, self.folder.weights_file.name
        length, highest = min(info.max_tokens, MAX_TRIAL_TOKENS), info.vocabulary_size - 1
        mismatch_errors: tuple[type[Exception], ...] = (*library_errors(), ValueError, IndexError)
        try:
            (row,) = self.run([Tokens([highest] * length)], reduce)
        except mismatch_errors as error:
            raise self._error(
                f"{file} cannot compute {length} tokens with the id {highest}, which config.json"
                f" allows: {type(error).__name__}"
            ) from error
        if row.shape != (info.dimensions,):
            raise self._error(
                f"{file} gives {list(row.shape)} numbers for a text, but config.json says"
                f" {info.dimensions}"
            )
        if not np.isfinite(row).all():
            raise self._error(f"{file} gives numbers that are not finite")

    def tokenize(self, text: str, second: str | None = None) -> Tokens:
        """Returns the tokens of a text, or of a pair of texts, with special tokens."""
        if self.folder.lowercases:
            text = text.lower()
        encoding = self._tokenizer.encode(text, second)
        return Tokens(encoding.ids, encoding.type_ids)

    def tokenize_truncated(self, text: str, max_tokens: int) -> Tokens:
        """Returns the first tokens of a text with special tokens, at most `max_tokens` in all."""
        if self.folder.lowercases:
            text = text.lower()
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(max_tokens - self._tokenizer.num_special_tokens_to_add(False))
        encoding = self._tokenizer.post_process(encoding)
        return Tokens(encoding.ids, encoding.type_ids)

    def run(self, inputs: Sequence[Tokens], reduce: "RowReducer") -> list[Floats]:
        """Returns one row for each input. Inputs of similar length share a run of the network.
        `reduce`: makes the rows from the network's output."""
        rows: list[Floats | None] = [None] * len(inputs)
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index]))
        for group in _groups(order, inputs):
            ids, mask, types = _pad([inputs[index] for index in group], self._pad_id)
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            feed = {name: value for name, value in feed.items() if name in self._inputs}
            (output,) = self._session.run([self._output], feed)
            for index, row in zip(group, reduce(output, mask), strict=True):
                rows[index] = row
        return [row for row in rows if row is not None]

    def _read_tokenizer(self) -> Any:
        """Returns the tokenizer, which never cuts or pads. Raises EngineError if it is damaged or
        does not fit config.json."""
        from tokenizers import Tokenizer

        info = self.folder.info
        text = (self.folder.path / TOKENIZER_FILE).read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(text)
        except ValueError as error:
            raise self._error(f"{TOKENIZER_FILE} cannot be read: {error}") from error
        # Some files hold a length at which the tokenizer cuts. A text that is too long would then
        # be cut without an error.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        added = tokenizer.get_added_tokens_decoder()
        tokens = max(
            tokenizer.get_vocab_size(with_added_tokens=False), *(number + 1 for number in added), 0
        )
        if tokens > info.vocabulary_size:
            raise self._error(
                f"{TOKENIZER_FILE} has {tokens} tokens, but config.json says vocab_size"
                f" {info.vocabulary_size}"
            )
        if info.max_tokens <= (special := tokenizer.num_special_tokens_to_add(True)):
            raise self._error(
                f"at most {info.max_tokens} tokens leave no room besides the {special} special ones"
            )
        return tokenizer

    def _error(self, why: str) -> EngineError:
        return EngineError(self.folder.kind, self.folder.info.model, why)

    @property
    def _pad_id(self) -> int:
        return self.folder.config.pad_token_id or 0


RowReducer = Callable[[Floats, npt.NDArray[np.int64]], Floats]
"""Function that makes one row for each input. Its arguments are the network's output, shape
(inputs, tokens, size) or (inputs, size), and the attention mask, shape (inputs, tokens)."""


def library_errors() -> tuple[type[Exception], ...]:
    """Returns onnxruntime's errors for a damaged file, and for inputs that do not fit it. They have
    no common base class."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    return (
        errors.Fail,
        errors.InvalidArgument,
        errors.InvalidGraph,
        errors.InvalidProtobuf,
        errors.NoSuchFile,
        errors.NotImplemented,
        errors.RuntimeException,
    )


def open_session(network: Path | bytes, folder: Path, threads: int) -> Any:
    """Returns an `onnxruntime.InferenceSession`. `network`: an ONNX file, or its content. `folder`:
    location of the weights that the content refers to. `threads`: see `TextEncoder`. Raises
    onnxruntime's errors, see `library_errors`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or min(os.cpu_count() or 1, DEFAULT_THREADS)
    # Buffers are freed after each run. onnxruntime's arena would keep those of the longest text.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3  # errors only: warnings contain the sizes of the user's texts
    # A thread that spins while it waits takes processor time from the voices.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if isinstance(network, bytes):
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.resolve())
        )
    return onnxruntime.InferenceSession(
        network if isinstance(network, bytes) else str(network),
        options,
        providers=["CPUExecutionProvider"],
    )


def _groups(order: Sequence[int], inputs: Sequence[Tokens]) -> list[list[int]]:
    """Divides the inputs into groups, one for each run. A group has at most MAX_PADDING_TOKENS of
    padding and MAX_CALL_TOKENS in all. `order`: indices of the inputs, the shortest first."""
    groups: list[list[int]] = []
    used = 0
    for index in order:
        length = len(inputs[index])
        if groups:
            total = length * (len(groups[-1]) + 1)
            if total <= MAX_CALL_TOKENS and total - used - length <= MAX_PADDING_TOKENS:
                groups[-1].append(index)
                used += length
                continue
        groups.append([index])
        used = length
    return groups


def _pad(group: Sequence[Tokens], pad_id: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Returns ids, attention mask and token types, padded on the right to the longest input."""
    shape = (len(group), max(map(len, group)))
    ids, mask, types = (np.full(shape, value, np.int64) for value in (pad_id, 0, 0))
    for row, tokens in enumerate(group):
        ids[row, : len(tokens)] = tokens.ids
        mask[row, : len(tokens)] = 1
        types[row, : len(tokens)] = tokens.types
    return ids, mask, types
