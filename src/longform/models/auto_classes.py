"""Hugging Face's Auto classes and our class for each, and the code in a saved folder that names them.

The code lets a folder load in programs that import nothing of Longform: ``auto_map`` of its configuration names a file,
which Auto classes read with ``trust_remote_code=True``. The file imports the installed package and holds no code of it;
where the package is missing, they say what to install. After ``import longform`` nothing is asked.
"""

from pathlib import Path

from longform.data.storage import atomic_write

AUTO_MODELS = {
    "AutoModel": "LinformerModel",
    "AutoModelForMaskedLM": "LinformerForMaskedLM",
    "AutoModelForCausalLM": "LinformerForCausalLM",
    "AutoModelForSequenceClassification": "LinformerForSequenceClassification",
    "AutoModelForTokenClassification": "LinformerForTokenClassification",
    "AutoModelForQuestionAnswering": "LinformerForQuestionAnswering",
    "AutoModelForMultipleChoice": "LinformerForMultipleChoice",
}
CODE = "modeling_longform"
_HEAD = '"""Classes of the installed package Longform, for Hugging Face\'s Auto classes."""\n\n'
AUTO_MAP = {auto: f"{CODE}.{name}" for auto, name in {"AutoConfig": "LinformerConfig", **AUTO_MODELS}.items()}


def write_code(folder: Path) -> None:
    """Write the file that AUTO_MAP names."""
    names = ", ".join(sorted(AUTO_MODELS.values()))
    with atomic_write(folder / f"{CODE}.py") as opened:
        opened.write(f"{_HEAD}from longform import LinformerConfig, {names}  # noqa\n")
