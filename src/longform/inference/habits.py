"""Names of sentence-transformers, scikit-learn and pipelines that are others here, and what to write instead."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

from longform.choices import did_you_mean
from longform.errors import ConfigurationError

_LOADING = "from_pretrained chooses it: device=, dtype=, max_length="
_TRAINING = "longform.finetune trains classifiers, longform.align encoders"
_SAVING = "nothing is changed here: the folder that it was loaded from is .model.name_or_path"
_THREADS = "threads may share one object; longform.embed with engine='ray' uses several processes"
METHODS = {
    "similarity_pairwise": "similarity(one, other).diagonal()",
    "get_sentence_embedding_dimension": "get_embedding_dimension()",
    "get_max_seq_length": "max_seq_length",
    "tokenize": "tokenizer(texts)",
    "preprocess": "tokenizer(texts)",
    "prompts": "folder.prompts",
    "decision_function": "logits(texts)",
    "predict_log_proba": "numpy.log(predict_proba(texts))",
    "score": 'sklearn.metrics on the "label" of each prediction, or the command longform evaluate classification',
    "id2label": "labels",
    "num_labels": "features",
    "eval": "it is in evaluation mode",
    **dict.fromkeys(("to", "cpu", "cuda", "half", "bfloat16", "float"), _LOADING),
    **dict.fromkeys(("fit", "partial_fit", "train"), _TRAINING),
    **dict.fromkeys(("save", "save_pretrained", "push_to_hub"), _SAVING),
    **dict.fromkeys(("encode_multi_process", "start_multi_process_pool", "stop_multi_process_pool"), _THREADS),
}
OPTIONS = {
    **dict.fromkeys(("sentences", "inputs", "X"), "texts come first, or as texts="),
    **dict.fromkeys(("truncation", "padding"), 'texts are cut at the limit; on_long="error" refuses longer ones'),
    "precision": "vectors are float32; sentence_transformers.quantize_embeddings takes them",
    "output_value": "encode_chunks gives vectors of parts, .model and .tokenizer the hidden states",
    "device": _LOADING,
    "torch_dtype": "dtype, a name",
    "max_seq_length": "max_length",
    "trust_remote_code": "no code of a folder is run",
    "cache_folder": "the environment variable HF_HOME names it",
    "return_all_scores": "top_k=None",
    "function_to_apply": "logits(texts) are the values before it",
}


def lacking(kind: str, name: str) -> str:
    """The message about an attribute that ``kind`` lacks."""
    return f"{kind} has no {name}{f': {METHODS[name]}' if name in METHODS else ''}"


def check_options(function: Any, given: Iterable[str]) -> None:
    """Raise ConfigurationError for the first of the ``given`` names, which are no options of the ``function``."""
    for name in given:
        known = [each for each in signature(function).parameters if each not in ("self", "cls", "others")]
        way = f": {OPTIONS[name]}" if name in OPTIONS else did_you_mean(name, known) or f"; it has {', '.join(known)}"
        raise ConfigurationError(f'{function.__name__} has no option "{name}"{way}')
