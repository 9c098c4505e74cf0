"""Names that options may have, and what is near another; in a module that imports nothing of torch, for quick help.

What a name does is said where it is used: longform.layers.sequence_projection for projections, longform.functional for
positions and poolings, longform.conversion.tasks for tasks.
"""

from collections.abc import Collection
from difflib import get_close_matches
from typing import NamedTuple


class ProjectionKind(NamedTuple):
    """Facts about a kind of projection; its module is in longform.layers.sequence_projection.

    ``covers_runs``: a slot stands for a run of tokens, so that there may be a window; ``has_matrices``: E and F, or
    kernels, which heads, keys and values, or layers may share; ``keeps_tokens``: of a text that has no more tokens than
    there are slots each token is a slot; ``has_order``: what a token counts for depends on its place, so that the
    tokens of a text stand in an order.
    """

    covers_runs: bool
    has_matrices: bool
    keeps_tokens: bool
    has_order: bool = True


PROJECTION_KINDS = {
    "linear": ProjectionKind(covers_runs=False, has_matrices=True, keeps_tokens=False),
    "weighted_mean": ProjectionKind(covers_runs=True, has_matrices=False, keeps_tokens=True),
    "mean": ProjectionKind(covers_runs=True, has_matrices=False, keeps_tokens=True),
    "max": ProjectionKind(covers_runs=True, has_matrices=False, keeps_tokens=True),
    "convolution": ProjectionKind(covers_runs=True, has_matrices=True, keeps_tokens=False),
    "random": ProjectionKind(covers_runs=False, has_matrices=True, keeps_tokens=False),
    "latent": ProjectionKind(covers_runs=False, has_matrices=False, keeps_tokens=False, has_order=False),
}
NAMED_PROJECTIONS = {  # fields of a Projection under one name
    "by_place": {"kind": "linear", "init": "normal"},
    "content_and_place": {"kind": "weighted_mean", "places": True},
}
PROJECTIONS = tuple(PROJECTION_KINDS)
PROJECTION_NAMES = (*PROJECTIONS, *NAMED_PROJECTIONS)  # that an option may have
POOLED = tuple(name for name, kind in PROJECTION_KINDS.items() if kind.covers_runs)
DEFAULT_PROJECTION, DEFAULT_SHARING = "weighted_mean", "headwise"
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
INDEX_FOLDER = ".longform"  # of an index, in the folder that is searched
# Hugging Face's Auto classes, and ours for them.
AUTO_MODELS = {
    "AutoModel": "LinformerModel",
    "AutoModelForMaskedLM": "LinformerForMaskedLM",
    "AutoModelForCausalLM": "LinformerForCausalLM",
    "AutoModelForSequenceClassification": "LinformerForSequenceClassification",
    "AutoModelForTokenClassification": "LinformerForTokenClassification",
    "AutoModelForQuestionAnswering": "LinformerForQuestionAnswering",
}


def facts_of(projection: str) -> ProjectionKind:
    """The facts of a name in PROJECTION_NAMES."""
    fields = NAMED_PROJECTIONS.get(projection, {"kind": projection})
    facts = PROJECTION_KINDS[str(fields["kind"])]
    return facts._replace(covers_runs=False, keeps_tokens=False) if fields.get("places") else facts


def did_you_mean(name: object, known: Collection[str]) -> str:
    """The end of a message about an unknown name: what is near it, or nothing."""
    begun = [each for each in known if len(str(name)) > 2 and each.startswith(str(name))]
    near = get_close_matches(str(name), known, n=1) or begun
    return f'; did you mean "{near[0]}"?' if near else ""
