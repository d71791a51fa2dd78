"""Builds the ONNX network of a checkpoint of the BERT family."""

from engines.runtime.model_files.checkpoint_graph import INT32, INT64, Checkpoint, GraphWriter
from engines.runtime.text_encoder.folder import TextModelFolder, position_offset

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"Names of the inputs, the same as in exported BERT models."


def build_graph(model: TextModelFolder) -> bytes:
    """Returns the network as an ONNX file, see `GraphWriter.encode`. Its output is `logits` for
    reranking; for embeddings `last_hidden_state`, or `first_token` if the pooling needs only that.
    Raises EngineError if weights are missing or have other shapes than config.json says."""
    return _BertGraph(model).build()


class _BertGraph(GraphWriter):
    """The network of one model."""

    def __init__(self, model: TextModelFolder) -> None:
        self._model, self._config = model, model.config
        checkpoint = Checkpoint(model.path, model.kind)
        prefix = next(
            (
                prefix
                for prefix in ("", "bert.", "roberta.")
                if f"{prefix}embeddings.word_embeddings.weight" in checkpoint
            ),
            "",
        )
        super().__init__(checkpoint, prefix)

    def build(self) -> bytes:
        hidden = self._embeddings()
        mask = self.node("Cast", ["attention_mask"], to=INT32)
        needs_first_only = self._model.kind == "rerank" or self._model.pooling == "cls"
        last = self._config.num_hidden_layers - 1
        for index in range(last + 1):
            is_cut = needs_first_only and index == last
            hidden = self._layer(f"encoder.layer.{index}", hidden, mask, is_cut=is_cut)
        size = self._config.hidden_size
        shape: tuple[int | str, ...]
        if self._model.kind == "rerank":
            output, shape = "logits", ("batch", 1)
            hidden = self._logits(hidden)
        elif needs_first_only:
            output, shape = "first_token", ("batch", size)
        else:
            output, shape = "last_hidden_state", ("batch", "tokens", size)
        self.node("Identity", [hidden], output=output)
        inputs = [(name, INT64, ("batch", "tokens")) for name in INPUTS]
        return self.encode("text_encoder", inputs, (output, shape))

    def _embeddings(self) -> str:
        config, size = self._config, self._config.hidden_size
        words = self.weight("embeddings.word_embeddings.weight", (config.vocab_size, size))
        positions = self.weight(
            "embeddings.position_embeddings.weight", (config.max_position_embeddings, size)
        )
        types = self.weight("embeddings.token_type_embeddings.weight", (None, size))
        offset = position_offset(config)
        shape = self.node("Shape", ["input_ids"])
        length = self.node("Gather", [shape, self.int64("one", [1])], axis=0)
        end = self.node("Add", [length, self.int64("offset", [offset])])
        ends = [self.int64("offset", [offset]), end, self.int64("zero", [0])]
        used = self.node("Slice", [positions, *ends])
        total = self.node("Gather", [words, "input_ids"], axis=0)
        total = self.node("Add", [total, self.node("Gather", [types, "token_type_ids"], axis=0)])
        return self._norm_layer("embeddings.LayerNorm", self.node("Add", [total, used]))

    def _layer(self, name: str, hidden: str, mask: str, *, is_cut: bool) -> str:
        """Adds a layer. `is_cut`: True: its output has only the vector of the first token of each
        input. That saves three quarters of the layer, because only the attention needs all."""
        size, heads = self._config.hidden_size, self._config.num_attention_heads
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        attended = self.self_attention(parts, hidden, size, heads, mask=mask)
        if is_cut:
            first = self.int64("first", None, 0)
            attended, hidden = (
                self.node("Gather", [value, first], axis=1) for value in (attended, hidden)
            )
        attended = self.linear(f"{name}.attention.output.dense", attended, (size, size))
        hidden = self._norm_layer(
            f"{name}.attention.output.LayerNorm", self.node("Add", [attended, hidden])
        )
        inner = self.linear(f"{name}.intermediate.dense", hidden, (None, size))
        outer = self.linear(f"{name}.output.dense", self.node("Gelu", [inner]), (size, None))
        return self._norm_layer(f"{name}.output.LayerNorm", self.node("Add", [outer, hidden]))

    def _logits(self, first: str) -> str:
        """Adds the head of a cross-encoder. `first`: vectors of the first tokens."""
        size = self._config.hidden_size
        if self._config.model_type == "bert":
            pooled = self.node("Tanh", [self.linear("pooler.dense", first, (size, size))])
            return self.linear("classifier", pooled, (1, size), prefix="")
        pooled = self.linear("classifier.dense", first, (size, size), prefix="")
        pooled = self.node("Tanh", [pooled])
        return self.linear("classifier.out_proj", pooled, (1, size), prefix="")

    def _norm_layer(self, name: str, value: str) -> str:
        return self.norm(name, value, self._config.hidden_size, self._config.layer_norm_eps)
