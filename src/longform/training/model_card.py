"""The model card of a pre-trained model: what it is, what it learned from and how, how good it is, how to use it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import longform
from longform.runs.files import write_text
from longform.runs.model_card import architecture, model_card
from longform.runs.page import Block, Code, Heading, Table, facts_table
from longform.training.counted_losses import counted_losses

USE = """from transformers import pipeline

fill = pipeline("fill-mask", "this folder", trust_remote_code=True)  # needs longform installed, from its clone"""


def write_card(
    folder: Path, records: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], *, parameters: int
) -> None:
    """Write ``README.md`` into ``folder`` from a run's records."""
    run, end = (next(row for row in records if row["event"] == event) for event in ("run", "end"))
    last = [row for row in records if row["event"] == "validation"][-1]
    blocks = described_model(run, identity, end, last)
    write_text(
        folder / "README.md",
        model_card(title_of(identity, parameters), blocks, task="fill-mask", tags=["masked-lm"]),
    )


def title_of(identity: Mapping[str, Any], parameters: int) -> str:
    """The model in a line."""
    length = identity["model"]["max_position_embeddings"]
    return f"Linformer encoder, {parameters:,} parameters, {length:,} tokens"


def described_model(
    run: Mapping[str, Any], identity: Mapping[str, Any], end: Mapping[str, Any], last: Mapping[str, Any]
) -> list[Block]:
    """Everything below the title, from a run's records (``run``: its first, ``last``: its last validation)."""
    ours = f"this model, after {last['step']:,} steps ({last['tokens']:,} tokens)"
    losses = {ours: last["loss"], **counted_losses(run)}
    rows = [[name, f"{loss:.4f}", f"{math.exp(loss):.2f}"] for name, loss in losses.items()]
    return [
        f"A masked-language model trained from scratch with Longform {longform.__version__}. It fills in hidden "
        "tokens; for another task it has to be fine-tuned.",
        Heading("Architecture"),
        facts_table(architecture(identity["model"])),
        Heading("Data"),
        facts_table(data_facts(run)),
        "Which texts these were, their licence and their language, the run does not know: say it here before you "
        "publish.",
        Heading("Training"),
        facts_table(training_facts(identity["settings"], end, identity)),
        Heading("Evaluation"),
        f"{run['validation_hidden_tokens']:,} tokens of held-out text were hidden once and for all (15 % of the "
        "tokens; 80 % of them behind the mask token, 10 % behind another token, 10 % left as they were). The model was "
        f"asked for them, with blocks of {run['length']:,} tokens.",
        Table(["", "loss (nats a token)", "perplexity"], rows),
        "Perplexities compare between models with the same tokenizer and the same held-out text only. records.jsonl "
        "has every measurement.",
        Heading("Use"),
        Code(USE, "python"),
        Heading("Environment"),
        facts_table(run["environment"]),
    ]


def data_facts(run: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the corpus."""
    found = {"documents": run["corpus_documents"], "tokens": run["corpus_tokens"]}
    known = {name: "streamed, not counted" if value is None else value for name, value in found.items()}
    return {**known, "tokens held out": run["validation_tokens"], "block (tokens)": run["length"]}


def training_facts(recipe: Mapping[str, Any], end: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe and what it took."""
    schedule = f"{recipe['schedule']}, warm-up {recipe['warmup']:.0%} of the steps"
    return {
        "optimiser": f"Adam ({recipe['beta1']}, {recipe['beta2']}), epsilon {recipe['epsilon']}, "
        f"weight decay {recipe['weight_decay']}",
        "learning rate": f"{recipe['learning_rate']}; {schedule}",
        "steps": end["step"], "tokens seen": end["tokens"],
        "masking": f"{recipe['mask_fraction']:.0%} of the tokens, anew each time: mask {recipe['mask_share']:.0%}, "
        f"other token {recipe['random_share']:.0%}",
        "packing": recipe["packing"], "seed": recipe["seed"], "processes": identity["processes"],
        "wall-clock seconds": end["seconds"],
    }  # fmt: skip
