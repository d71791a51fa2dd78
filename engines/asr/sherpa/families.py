"""Families of models that sherpa-onnx runs: which files each has, which notes its files must hold,
and how the library is asked to load it.

The library ends its process if a file is of another kind than it expects, or lacks a note. So the
notes of a family are those that the library reads without a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.runtime.model_files.onnx_file import OnnxNotes

ENCODER, DECODER, JOINER, MODEL = "encoder", "decoder", "joiner", "model"
"Names of a model's parts. They are also the names of the library's arguments."

NotesByPart = Mapping[str, OnnxNotes]
"""Notes (the metadata of an ONNX file) of one model, by part. Parts in other formats have no
entry."""

FRAME_MS = 10
"Distance of two frames of features. All of these models were trained with it."

_ZIPFORMER2 = (
    *("encoder_dims", "query_head_dims", "value_head_dims", "num_heads", "num_encoder_layers"),
    *("cnn_module_kernels", "left_context_len", "T", "decode_chunk_len"),
)
_NEMO_CACHE = (
    *("vocab_size", "window_size", "chunk_shift", "subsampling_factor"),
    *(f"cache_last_{axis}_dim{number}" for axis in ("channel", "time") for number in (1, 2, 3)),
)
_NEMO_PREDICTOR = ("vocab_size", "subsampling_factor", "pred_rnn_layers", "pred_hidden")
_LFR = ("vocab_size", "lfr_window_size", "lfr_window_shift", "neg_mean", "inv_stddev")


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """One family of models. Two families with the same parts differ in the notes of their files."""

    name: str
    "Name in the settings."
    loader: str
    "Method of the library's class `OnlineRecognizer` or `OfflineRecognizer`."
    notes: Mapping[str, tuple[str, ...]]
    "Notes that the file of each part must hold. Its keys are the parts."
    types: tuple[str, ...] = ()
    "Values of the note `model_type`, if it distinguishes the family."
    absent: tuple[str, ...] = ()
    "Notes of the first part that only a similar family has."
    window_keys: tuple[str, str] | None = None
    """Notes of the first part with the number of frames that a step of the decoder sees, and by
    which it advances. None: the model needs the whole utterance."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    "Further arguments of the loader."
    language_argument: str = ""
    "Argument of the loader for the language; empty: the model has no choice of languages."
    is_recurrent: bool = False
    """True: the decoder hands on its state, so it has several outputs. By that the library
    distinguishes the two kinds of transducers."""
    can_search: bool = False
    "True: the decoder can keep several hypotheses, which hot words need."
    has_times: bool = True
    "True: the results have the times of tokens."

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of a model, each with a file of its own."""
        return tuple(self.notes)

    @property
    def is_streaming(self) -> bool:
        """True if the model decodes an utterance while it grows."""
        return self.window_keys is not None

    def problem(self, files: NotesByPart) -> str:
        """Returns why the library would refuse these files as this family; empty if it would
        not."""
        for part, keys in self.notes.items():
            notes = files.get(part)
            missing = [key for key in keys if notes is None or key not in notes.metadata]
            if missing:
                return f"its {part} lacks the notes {', '.join(missing)}"
        first = files.get(self.parts[0])
        if first is not None and self.types:
            found = first.metadata.get("model_type", "")
            if found not in self.types:
                return f"its model_type is {found!r}, not {' or '.join(self.types)}"
        decoder, joiner = files.get(DECODER), files.get(JOINER)
        if decoder is not None and joiner is not None:
            if (len(decoder.outputs) > 1) != self.is_recurrent:
                return f"its decoder has {len(decoder.outputs)} outputs"
            if len(joiner.inputs) != 2:
                return f"its joiner has {len(joiner.inputs)} inputs, not 2"
        if first is not None and not self.is_streaming and any(map(_is_state, first.inputs)):
            return f"its {self.parts[0]} hands on its state, as only streaming models do"
        if first is not None and (extra := [key for key in self.absent if key in first.metadata]):
            return f"its {self.parts[0]} has the notes {', '.join(extra)} of another family"
        return ""


def _is_state(name: str) -> bool:
    """Returns whether an input of the network takes the state of the step before."""
    return "cache" in name


def _transducer(name: str, types: tuple[str, ...], *keys: str) -> ModelFamily:
    """Returns a family of streaming transducers of icefall."""
    return ModelFamily(
        name,
        "from_transducer",
        {
            ENCODER: ("T", "decode_chunk_len", *keys),
            DECODER: ("vocab_size", "context_size"),
            JOINER: (),
        },
        types=types,
        window_keys=("T", "decode_chunk_len"),
        can_search=True,
    )


FAMILIES: tuple[ModelFamily, ...] = (
    _transducer("zipformer2-transducer", ("zipformer2",), *_ZIPFORMER2[:7]),
    _transducer(
        "zipformer-transducer",
        ("zipformer",),
        *("encoder_dims", "attention_dims", "num_encoder_layers"),
        *("cnn_module_kernels", "left_context_len"),
    ),
    _transducer(
        "conformer-transducer",
        ("conformer",),
        *("num_encoder_layers", "left_context", "encoder_dim", "pad_length", "cnn_module_kernel"),
    ),
    _transducer("lstm-transducer", ("lstm",), "num_encoder_layers", "rnn_hidden_size", "d_model"),
    ModelFamily(
        "nemo-streaming-transducer",
        "from_transducer",
        {ENCODER: (*_NEMO_CACHE, "pred_rnn_layers", "pred_hidden"), DECODER: (), JOINER: ()},
        window_keys=("window_size", "chunk_shift"),
        is_recurrent=True,
    ),
    ModelFamily(
        "zipformer2-streaming-ctc",
        "from_zipformer2_ctc",
        {MODEL: _ZIPFORMER2},
        window_keys=("T", "decode_chunk_len"),
    ),
    ModelFamily(
        "nemo-streaming-ctc",
        "from_nemo_ctc",
        {MODEL: _NEMO_CACHE},
        window_keys=("window_size", "chunk_shift"),
    ),
    ModelFamily(
        "nemo-transducer",
        "from_transducer",
        {ENCODER: _NEMO_PREDICTOR, DECODER: (), JOINER: ()},
        types=("EncDecRNNTBPEModel", "EncDecHybridRNNTCTCBPEModel"),
        absent=("window_size",),
        arguments={"model_type": "nemo_transducer"},
        is_recurrent=True,
    ),
    ModelFamily(
        "transducer",
        "from_transducer",
        {ENCODER: (), DECODER: ("vocab_size", "context_size"), JOINER: ()},
        types=("conformer", "zipformer", "zipformer2"),
        absent=("decode_chunk_len",),
        arguments={"model_type": "transducer"},
        can_search=True,
    ),
    ModelFamily(
        "zipformer-ctc",
        "from_zipformer_ctc",
        {MODEL: ()},
        types=("zipformer2_ctc",),
        absent=("decode_chunk_len",),
    ),
    ModelFamily(
        "wenet-ctc",
        "from_wenet_ctc",
        {MODEL: ("vocab_size", "subsampling_factor")},
        types=("wenet_ctc",),
        absent=("right_context",),
    ),
    ModelFamily(
        "nemo-ctc",
        "from_nemo_ctc",
        {MODEL: ("vocab_size", "subsampling_factor")},
        types=("EncDecCTCModelBPE", "EncDecCTCModel", "EncDecHybridRNNTCTCBPEModel"),
        absent=("window_size",),
    ),
    ModelFamily(
        "sense-voice",
        "from_sense_voice",
        {MODEL: (*_LFR, "with_itn", "without_itn", "lang_auto", "lang_zh", "lang_en")},
        arguments={"use_itn": True},
        language_argument="language",
    ),
    ModelFamily(
        "paraformer",
        "from_paraformer",
        {"paraformer": _LFR},
        absent=("with_itn", "decoder_num_blocks"),
    ),
    ModelFamily(
        "whisper",
        "from_whisper",
        {ENCODER: ("n_mels", "n_text_layer", "n_vocab", "sot", "eot", "sot_sequence"), DECODER: ()},
        language_argument="language",
        has_times=False,
    ),
    ModelFamily(
        "canary",
        "from_nemo_canary",
        {ENCODER: ("vocab_size", "subsampling_factor", "feat_dim"), DECODER: ()},
        types=("EncDecMultiTaskModel",),
        language_argument="src_lang",
        has_times=False,
    ),
    ModelFamily(
        "moonshine",
        "from_moonshine",
        {"preprocessor": (), ENCODER: (), "uncached_decoder": (), "cached_decoder": ()},
        has_times=False,
    ),
    ModelFamily("moonshine-v2", "from_moonshine_v2", {ENCODER: (), DECODER: ()}, has_times=False),
)
"All families. The first one that fits a folder is taken, so those with the most notes come first."
