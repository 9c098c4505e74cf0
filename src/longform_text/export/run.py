"""``export_model``: the graph of a folder written where other programs look for it, the function behind ``longform
export``."""

import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from longform.conversion.local import local_source
from longform.errors import CheckpointError, ConfigurationError, some
from longform.files import atomic_folder, copy_anew, entries, sole_output
from longform.models.configuration_linformer import LinformerConfig
from longform.pretrained.sentence_modules import encoder_folder
from longform.pretrained.weights import load_tokenizer, load_whole, read_config
from longform_text.export.formats import files_of, write, write_int8
from longform_text.inference.exported import FILES, HIDDEN, LOGITS, ExportedModel, open_graph

BATCHES = (1, 3)
TOLERANCE = 1e-4  # the largest difference of a hidden state or logit, float32


class Checked(NamedTuple):
    """``length`` n, ``batch`` B, and the largest ``difference`` between the graph's output and the model's."""

    length: int
    batch: int
    difference: float


def critical_lengths(config: LinformerConfig) -> list[int]:
    """Lengths around which something changes: the ends, the window, the slots of any head."""
    longest, window = config.max_position_embeddings, config.attention_window
    slots = {k for layer in config.head_slots() for k in layer}
    found = {1, 2, longest - 1, longest} | {k + step for k in slots for step in (-1, 0, 1)}
    if window is not None:
        found |= {window - 1, window, 2 * window, 2 * window + 1}
    return sorted(n for n in found if 1 <= n <= longest)


def padded_texts(config: LinformerConfig, inputs: tuple[str, ...], *, batch: int, length: int) -> dict[str, Tensor]:
    """Random tokens long (B, n) by name of the input; the first text fills its row, the others end before."""
    generator = torch.Generator().manual_seed(length)
    lengths = torch.tensor([max(1, length * (batch - row) // batch) for row in range(batch)])
    mask = (torch.arange(length) < lengths[:, None]).long()
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    if config.pad_token_id is not None:
        ids = torch.where(mask.bool(), ids, config.pad_token_id)
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {name: made[name] for name in inputs}


@torch.inference_mode()
def check_graph(model: Any, graph: ExportedModel, *, tolerance: float = TOLERANCE) -> list[Checked]:
    """How far ``graph`` is from ``model`` (eager, float32) at each critical length, alone and with padded texts.

    Raises CheckpointError where they differ by more than ``tolerance``, or by NaN.
    """
    rows = []
    for length in critical_lengths(model.config):
        for batch in BATCHES:
            given = padded_texts(model.config, graph.inputs, batch=batch, length=length)
            found, expected = (run(**given)[graph.output] for run in (graph, model))
            if graph.output == HIDDEN:
                kept = given["attention_mask"].bool()
                found, expected = found[kept], expected[kept]
            rows.append(Checked(length, batch, float((found - expected).abs().max())))
    if wrong := [row for row in rows if not row.difference <= tolerance]:
        named = ", ".join(f"n={row.length} (batch {row.batch}): {row.difference:.2g}" for row in wrong)
        raise CheckpointError(
            f"the exported graph differs from the model by more than {tolerance} at {named}; nothing is written: "
            "please report the model's config.json and the versions that longform doctor prints"
        )
    return rows


def as_table(rows: list[Checked]) -> list[dict[str, Any]]:
    """A row a length, a column a batch."""
    found = {(row.length, row.batch): row.difference for row in rows}
    return [
        {"length": length, **{f"batch {batch}": f"{found[length, batch]:.1e}" for batch in BATCHES}}
        for length in dict.fromkeys(row.length for row in rows)
    ]


CLASSIFIERS: dict[str, Any] = {
    "LinformerForSequenceClassification": AutoModelForSequenceClassification,
    "LinformerForTokenClassification": AutoModelForTokenClassification,
}
ENCODERS = ("LinformerModel", "LinformerForMaskedLM")


@dataclass(frozen=True)
class ExportResult:
    """Result of an export. ``megabytes`` and ``int8_megabytes``: of each graph with its weights."""

    file: str
    int8_file: str | None
    inputs: str
    output: str
    longest: int  # tokens
    megabytes: float
    int8_megabytes: float | None
    seconds: float
    checked: list[Checked] = field(default_factory=list, repr=False)


def export_model(
    folder: str | Path,
    output: str | Path | None = None,
    *,
    int8: bool = False,
    check: bool = False,
    restart: bool = False,
) -> ExportResult:
    """Write the graph of a Longform's ``folder`` into it, or into a copy of the whole folder, ``output``.

    The graph is onnx/model.onnx, in float32, which ONNX Runtime and OpenVINO read. Inputs are ``input_ids``,
    ``attention_mask`` and, where tokenizer and model have them, ``token_type_ids``, int64 (B, n), any batch and length;
    a classifier gives ``logits``, another folder ``last_hidden_state``. ``int8``: a graph with weights of 8 bits beside
    it. ``check``: the graph is run beside the model first (``check_graph``). ``restart``: an earlier one is replaced.

    Raises CheckpointError, ConfigurationError for what cannot be exported or is there already, MissingDependencyError.
    """
    started, source = time.perf_counter(), Path(local_source(folder)).expanduser()
    config = _longform_config(source)
    with _graph_folder(source, output, restart=restart) as (unfinished, shown):
        model, inputs, name = _opened(Path(encoder_folder(source)), config)
        file = write(model, unfinished, inputs=inputs, output=name)
        checked = check_graph(model, open_graph(file, config)) if check else []
        written = [file, write_int8(file)] if int8 else [file]
        sizes = [sum(part.stat().st_size for part in files_of(each)) / 2**20 for each in written]
    return ExportResult(
        str(shown / file.name),
        str(shown / written[1].name) if int8 else None,
        ", ".join(inputs),
        name,
        config.max_position_embeddings,
        sizes[0],
        sizes[1] if int8 else None,
        time.perf_counter() - started,
        checked,
    )


def _longform_config(source: Path) -> LinformerConfig:
    """The config of a folder. Raises CheckpointError where that is no Longform's encoder or classifier."""
    if not source.is_dir():
        raise CheckpointError(f'"{source}" is no folder: export reads a saved Longform, and writes beside it')
    config = read_config(encoder_folder(source))
    heads = getattr(config, "architectures", None) or [ENCODERS[0]]
    if not isinstance(config, LinformerConfig) or heads[0] not in (*CLASSIFIERS, *ENCODERS):
        raise CheckpointError(
            f'"{source}" holds a {heads[0]}; what is exported is an encoder or a sequence classifier of Longform '
            f"({', '.join((*CLASSIFIERS, *ENCODERS))}): longform convert makes one"
        )
    return config


def _opened(source: Path, config: LinformerConfig) -> tuple[Any, tuple[str, ...], str]:
    """The model of a folder, float32 on the CPU, the inputs that its tokenizer gives it, and what it is wanted for."""
    auto: Any = CLASSIFIERS.get((config.architectures or [""])[0], AutoModel)
    model = load_whole(auto, source, dtype=torch.float32).eval()
    tokenizer: Any = load_tokenizer(source, config)
    typed = config.type_vocab_size and "token_type_ids" in tokenizer.model_input_names
    types = ("token_type_ids",) if typed else ()
    return model, ("input_ids", "attention_mask", *types), HIDDEN if auto is AutoModel else LOGITS


@contextmanager
def _graph_folder(source: Path, output: str | Path | None, *, restart: bool) -> Generator[tuple[Path, Path]]:
    """Where the graph is written, and where it stands in the end, which it does whole or not at all.

    Raises ConfigurationError where something is that is not to be replaced.
    """
    inside = Path(encoder_folder(source), FILES["onnx"]).parent
    if output is None:
        with sole_output(inside, folder=True) as place:
            _check_replaceable(place, restart=restart)
            with atomic_folder(place) as unfinished:
                yield unfinished, inside
        return
    with sole_output(Path(output).expanduser(), inputs=(source,), folder=True) as place:
        if there := entries(place):
            raise ConfigurationError(f'"{output}" is not empty ({some(there)}): give another folder')
        with atomic_folder(place) as unfinished:
            copy_anew(source, unfinished)
            graphs = unfinished / inside.relative_to(source)
            shutil.rmtree(graphs, ignore_errors=True)  # an earlier export of the source
            graphs.mkdir()
            yield graphs, Path(output) / inside.relative_to(source)


def _check_replaceable(place: Path, *, restart: bool) -> None:
    """Raise ConfigurationError where ``place`` holds anything, unless that is an export and ``restart``."""
    there = entries(place)
    if there and not restart:
        raise ConfigurationError(
            f'"{place}" holds an export already ({some(there)}): make it anew with restart=True (--restart)'
        )
    ours = {part.name for file in FILES.values() for part in files_of(place / Path(file).name)}
    if others := entries(place, but=ours):
        raise ConfigurationError(
            f'"{place}" is not replaced, since it holds more than an export ({some(others)}): move that away'
        )
