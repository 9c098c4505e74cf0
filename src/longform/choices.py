"""Names that options may have, in a module that imports nothing: the command line lists them before torch is loaded.

What a name does is where it is used: longform.layers.geometry for projections, longform.functional for positions and
poolings, longform.conversion.tasks for tasks.
"""

PROJECTIONS = ("linear", "mean", "max", "convolution", "random")
POOLED = ("mean", "max", "convolution")  # local support: a slot covers a run of tokens, so there may be a window
SHARINGS = ("none", "headwise", "key_value", "layerwise")
PROJECTION_INITS = ("normal", "block_mean")
EXTENSIONS = ("tile", "interpolate")  # of a table of positions to more rows
PACKINGS = ("full", "documents")  # of a corpus into blocks
BOUNDARIES = ("tokens", "sentences", "paragraphs")  # where a chunk may begin
POOLINGS = ("cls", "mean", "lead", "cls_mean", "cls_lead")
TASKS = (
    "encoder", "masked-lm", "sequence-classification", "token-classification", "question-answering", "multiple-choice",
)  # fmt: skip
