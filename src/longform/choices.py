"""Names that options may have, and what is near another; in a module that imports nothing of torch, for quick help.

What a name does is where it is used: longform.layers.geometry for projections, longform.functional for positions and
poolings, longform.conversion.tasks for tasks.
"""

from collections.abc import Collection
from difflib import get_close_matches

PROJECTIONS = ("linear", "weighted_mean", "mean", "max", "convolution", "random")
# A slot covers a run of tokens, so that there may be a window.
POOLED = ("weighted_mean", "mean", "max", "convolution")
SHARINGS = ("none", "headwise", "key_value", "layerwise")
PROJECTION_INITS = ("normal", "block_mean")
EXTENSIONS = ("tile", "interpolate")  # of a table of positions to more rows
PACKINGS = ("full", "documents")  # of a corpus into blocks
BOUNDARIES = ("tokens", "sentences", "paragraphs")  # where a chunk may begin
NORMS = ("layer_norm", "rms_norm")
LAYER_TYPES = ("full_attention", "sliding_attention")  # Hugging Face's words
PREDICTION_HEADS = ("bert", "modernbert", "eurobert")  # whose layers stand before the last one of a task's head
POOLINGS = ("cls", "mean", "lead", "cls_mean", "cls_lead")
DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta", "privateuseone")  # kinds that torch knows
DTYPES = ("float32", "bfloat16", "auto")
VECTOR_DTYPES = ("float32", "float16")  # of vectors as they are written
EXPORT_FORMATS = ("onnx",)  # OpenVINO reads it too
BACKENDS = ("torch", "onnx", "onnx-int8", "openvino", "openvino-int8")  # what runs a model
SCHEDULES = ("cosine", "linear", "constant")  # of a learning rate
STRATEGIES = ("whole", "chunk-average")  # for texts that are longer than a model takes
ON_LONG = ("truncate", "error")
RETRIEVAL_SCORES = ("document", "best-chunk")
ENGINES = ("local", "ray")  # where documents are embedded and labelled
ON_ERROR = ("fail", "skip")  # of a row that cannot be read or computed
STANDARD_OUTPUT = "-"  # as the name of an output
SCALES = ("small", "paper")  # of the paper's measurements
PAIR_KINDS = ("sentence", "passage", "title", "halves")  # made of a text without queries
TASKS = (
    "encoder",
    "masked-lm",
    "sequence-classification",
    "token-classification",
    "question-answering",
)


def did_you_mean(name: object, known: Collection[str]) -> str:
    """The end of a message about an unknown name: what is near it, or nothing."""
    near = get_close_matches(str(name), known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
