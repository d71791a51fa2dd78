"""Builds the ONNX networks of a CLIP or SigLIP checkpoint: one for texts and one for images.

The weights stay in the checkpoint, see `engines.runtime.model_files.checkpoint_graph`.
"""

from collections.abc import Callable

from engines.runtime.image_text.folder import ImageTextFolder, TowerConfig
from engines.runtime.model_files.checkpoint_graph import (
    FLOAT,
    INT64,
    MICROSOFT,
    Checkpoint,
    GraphWriter,
)

TEXT_INPUT, IMAGE_INPUT = "input_ids", "pixel_values"
TEXT_OUTPUT, IMAGE_OUTPUT = "text_embeds", "image_embeds"
"Names of the inputs and outputs, the same as in exported towers."

OLD_END_TOKEN = 2
"""Wrong id of the end token in the config.json of the first CLIP models. In their texts the end
token has the highest id. transformers makes the same exception."""

QUICK_GELU_FACTOR = 1.702
"Factor in CLIP's approximation of Gelu: x * sigmoid(factor * x)."


def text_tower(model: ImageTextFolder, checkpoint: Checkpoint) -> bytes:
    """Returns the network for texts, from token ids to vectors.

    CLIP's vector is that of the end token, and no token sees a later one, so any padding may
    follow. SigLIP's vector is that of the last position, so texts must be padded to
    `max_position_embeddings`. Raises EngineError if weights are missing or have other shapes than
    config.json says.
    """
    config = model.text
    graph = _Tower(checkpoint, "text_model.", config)
    vectors = graph.text_vectors(is_clip=model.family == "clip", dimensions=model.info.dimensions)
    graph.node("Identity", [vectors], output=TEXT_OUTPUT)
    inputs = [(TEXT_INPUT, INT64, ("batch", "tokens"))]
    return graph.encode("text_tower", inputs, (TEXT_OUTPUT, ("batch", model.info.dimensions)))


def image_tower(model: ImageTextFolder, checkpoint: Checkpoint) -> bytes:
    """Returns the network for images, from values of shape (batch, 3, size, size) to vectors.
    Raises EngineError like `text_tower`."""
    size = model.vision.image_size
    graph = _Tower(checkpoint, "vision_model.", model.vision)
    if model.family == "clip":
        vectors = graph.clip_image_vectors(model.info.dimensions)
    else:
        vectors = graph.siglip_image_vectors()
    graph.node("Identity", [vectors], output=IMAGE_OUTPUT)
    inputs = [(IMAGE_INPUT, FLOAT, ("batch", 3, size, size))]
    return graph.encode("image_tower", inputs, (IMAGE_OUTPUT, ("batch", model.info.dimensions)))


class _Tower(GraphWriter):
    """The network of one tower."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, config: TowerConfig) -> None:
        super().__init__(checkpoint, prefix)
        self._config, self._size = config, config.hidden_size

    def text_vectors(self, *, is_clip: bool, dimensions: int) -> str:
        """Adds the whole network for texts. `dimensions`: length of the vectors."""
        config, size = self._config, self._size
        words = self.weight("embeddings.token_embedding.weight", (config.vocab_size, size))
        positions = self.weight(
            "embeddings.position_embedding.weight", (config.max_position_embeddings, size)
        )
        length = self.node(
            "Gather", [self.node("Shape", [TEXT_INPUT]), self.int64("one", [1])], axis=0
        )
        used = self.node("Slice", [positions, self.int64("zero", [0]), length, "zero"])
        hidden = self.node("Add", [self.node("Gather", [words, TEXT_INPUT], axis=0), used])
        hidden = self._layers(hidden, is_causal=is_clip)
        hidden = self._norm_layer("final_layer_norm", hidden)
        if not is_clip:
            last = self.node("Gather", [hidden, self.int64("last", None, -1)], axis=1)
            return self.linear("head", last, (dimensions, size))
        # ArgMax finds the first end token: it has the highest id, or is marked by 1.
        ids = TEXT_INPUT
        if config.eos_token_id != OLD_END_TOKEN:
            end = self.int64("end", None, config.eos_token_id)
            ids = self.node("Cast", [self.node("Equal", [ids, end])], to=INT64)
        first_end = self.node("ArgMax", [ids], axis=1, keepdims=1)
        pooled = self.node("GatherND", [hidden, first_end], batch_dims=1)
        return self._projection("text_projection", pooled, dimensions)

    def clip_image_vectors(self, dimensions: int) -> str:
        """Adds CLIP's whole network for images. `dimensions`: length of the vectors."""
        config, size = self._config, self._size
        patches = self._patches(has_bias=False)
        first = self.node(
            "Reshape",
            [self.weight("embeddings.class_embedding", (size,)), self.int64("row", [1, 1, size])],
        )
        hidden = self.node("Concat", [self._repeat_per_image(first), patches], axis=1)
        hidden = self._add_positions(hidden, config.patches + 1)
        hidden = self._layers(self._norm_layer("pre_layrnorm", hidden))
        first = self.node("Gather", [hidden, self.int64("first", None, 0)], axis=1)
        return self._projection(
            "visual_projection", self._norm_layer("post_layernorm", first), dimensions
        )

    def siglip_image_vectors(self) -> str:
        """Adds SigLIP's whole network for images."""
        hidden = self._add_positions(self._patches(has_bias=True), self._config.patches)
        hidden = self._norm_layer("post_layernorm", self._layers(hidden))
        return self._attention_pooling(hidden)

    def _attention_pooling(self, hidden: str) -> str:
        """Adds SigLIP's head: attention of a learned query to all patches, and a last layer."""
        size = self._size
        probe = self.weight("head.probe", (1, 1, size))
        weights = self.weight("head.attention.in_proj_weight", (3 * size, size))
        biases = self.weight("head.attention.in_proj_bias", (3 * size,))
        axis = self.int64("axis", [0])
        projections = []
        for index, value in enumerate((probe, hidden, hidden)):
            begin = self.int64(f"begin_{index}", [index * size])
            end = self.int64(f"end_{index}", [(index + 1) * size])
            rows = self.node("Slice", [weights, begin, end, axis])
            product = self.node("MatMul", [value, self.node("Transpose", [rows], perm=[1, 0])])
            bias = self.node("Slice", [biases, begin, end, axis])
            projections.append(self.node("Add", [product, bias]))
        query, key, value = projections
        pooled = self.node(
            "MultiHeadAttention",
            [self._repeat_per_image(query), key, value],
            domain=MICROSOFT,
            num_heads=self._config.num_attention_heads,
        )
        pooled = self.linear("head.attention.out_proj", pooled, (size, size))
        pooled = self.node("Gather", [pooled, self.int64("first", None, 0)], axis=1)
        inner = self._feed_forward("head.mlp", self._norm_layer("head.layernorm", pooled))
        return self.node("Add", [pooled, inner])

    def _patches(self, *, has_bias: bool) -> str:
        """Adds the layer that turns pixels into one vector for each patch."""
        config, size, edge = self._config, self._size, self._config.patch_size
        name = "embeddings.patch_embedding"
        inputs = [IMAGE_INPUT, self.weight(f"{name}.weight", (size, 3, edge, edge))]
        if has_bias:
            inputs.append(self.weight(f"{name}.bias", (size,)))
        grid = self.node("Conv", inputs, strides=[edge, edge], kernel_shape=[edge, edge])
        flat = self.node("Reshape", [grid, self.int64("flat", [0, size, config.patches])])
        return self.node("Transpose", [flat], perm=[0, 2, 1])

    def _repeat_per_image(self, row: str) -> str:
        """Repeats a value of shape (1, 1, size) for each image of the batch."""
        batch = self.node("Shape", [IMAGE_INPUT], end=1)
        shape = self.node("Concat", [batch, self.int64("ones", [1, 1])], axis=0)
        return self.node("Expand", [row, shape])

    def _add_positions(self, hidden: str, positions: int) -> str:
        name = "embeddings.position_embedding.weight"
        return self.node("Add", [hidden, self.weight(name, (positions, self._size))])

    def _layers(self, hidden: str, *, is_causal: bool = False) -> str:
        size, heads = self._size, self._config.num_attention_heads
        for index in range(self._config.num_hidden_layers):
            name = f"encoder.layers.{index}"
            attention = f"{name}.self_attn"
            attended = self.self_attention(
                [f"{attention}.{part}_proj" for part in "qkv"],
                self._norm_layer(f"{name}.layer_norm1", hidden),
                size,
                heads,
                is_causal=is_causal,
            )
            attended = self.linear(f"{attention}.out_proj", attended, (size, size))
            hidden = self.node("Add", [hidden, attended])
            normed = self._norm_layer(f"{name}.layer_norm2", hidden)
            hidden = self.node("Add", [hidden, self._feed_forward(f"{name}.mlp", normed)])
        return hidden

    def _feed_forward(self, name: str, value: str) -> str:
        size, inner_size = self._size, self._config.intermediate_size
        inner = self.linear(f"{name}.fc1", value, (inner_size, size))
        return self.linear(f"{name}.fc2", self._activation(inner), (size, inner_size))

    def _activation(self, value: str) -> str:
        activations: dict[str, Callable[[], str]] = {
            "gelu": lambda: self.node("Gelu", [value]),
            "gelu_pytorch_tanh": lambda: self.node("Gelu", [value], approximate="tanh"),
            "quick_gelu": lambda: self.node(
                "QuickGelu", [value], domain=MICROSOFT, alpha=QUICK_GELU_FACTOR
            ),
        }
        return activations[self._config.hidden_act]()

    def _projection(self, name: str, value: str, dimensions: int) -> str:
        weight = self.transposed(f"{name}.weight", (dimensions, self._size), prefix="")
        return self.node("MatMul", [value, weight])

    def _norm_layer(self, name: str, value: str) -> str:
        return self.norm(name, value, self._size, self._config.layer_norm_eps)
