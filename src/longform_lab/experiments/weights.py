"""The adapter ``minilm-16k`` that comes with Longform, trained again.

    python -m longform_lab.experiments.weights --data ../shared/data --output runs/weights

About an hour on one CPU core; interrupted, the same command goes on. It ends by saying whether the tensors are those
that are shipped, or how far each is from them, and copies nothing: ``runs/weights/aligned/adapter`` is the result. No
meeting is among the texts, so that QMSum stays a test.
"""

import argparse
import json
from pathlib import Path

import pyarrow.parquet as pq
from safetensors.torch import load_file

import longform
from longform.conversion.adapter import TOKEN_WEIGHTS, WEIGHTS
from longform.conversion.shipped import ACCOUNT, HUB_NAME, SHIPPED
from longform.inference.weights import local_source
from longform.training.alignment.settings import AlignmentSettings, AlignmentSource

NAME = "minilm-16k"
COUNTED = (  # files, their field, and the first texts of each in which tokens are counted
    ("wikipedia_long", "text", 2000),
    ("scisummnet_train", "paper_without_abstract", 500),
    ("contracts_train", "text", 500),
    ("newsgroups_train", "text", 2000),
)
SETTINGS = AlignmentSettings(
    max_length=8192,
    max_steps=32,
    warmup=0.2,
    learning_rate=1e-3,
    lora_rank=8,
    documents_per_step=8,
    queries_per_document=4,
    heldout_documents=0,
    dtype="float32",
)


def sources(data: Path) -> list[AlignmentSource]:
    """Summaries of papers, and parts of papers, contracts and articles; the last 200 papers stay a test."""
    papers = str(data / "scisummnet_train.parquet")
    return [
        AlignmentSource(pairs=papers, query_field="summary", document_field="paper_without_abstract", first=500),
        AlignmentSource(texts=papers, text_field="paper_without_abstract", first=500, make=["sentence", "passage"]),
        AlignmentSource(texts=str(data / "contracts_train.parquet"), make=["sentence", "passage"]),
        AlignmentSource(
            texts=str(data / "wikipedia_long.parquet"),
            title_field="title",
            first=4000,
            make=["sentence", "passage", "title", "halves"],
        ),
    ]


def counted(data: Path) -> list[str]:
    """The texts in which tokens are counted."""
    return [
        text
        for name, column, count in COUNTED
        for text in pq.read_table(data / f"{name}.parquet", columns=[column])[column].to_pylist()[:count]
    ]


def train(data: Path, output: Path) -> Path:
    """The folder of the adapter."""
    converted = output / "converted"
    if not converted.is_dir():
        texts = counted(data)
        longform.convert(local_source("bundled"), max_length=16384, idf=texts).save_pretrained(converted)
    longform.align(converted, sources(data), SETTINGS, output=output / "aligned")
    adapter = output / "aligned" / "adapter"
    account = json.loads((adapter / ACCOUNT).read_text(encoding="utf-8"))
    # Found afterwards, on the states of what was trained (docs/lab/alignment.md): repeated tokens weigh less, and with
    # that weights by idf, by which it was trained, bring nothing more and cost 1.5 points on sentences.
    account["options"]["sublinear_tf"] = True
    (adapter / TOKEN_WEIGHTS).unlink(missing_ok=True)
    (adapter / ACCOUNT).write_text(json.dumps(account | {"source": HUB_NAME}, indent=2) + "\n", encoding="utf-8")
    return adapter


def compared(found: Path, shipped: Path) -> dict[str, float]:
    """The largest difference of each tensor that is not the same, by name."""
    one, other = load_file(found / WEIGHTS), load_file(shipped / WEIGHTS)
    differences = {name: float((one[name].float() - other[name].float()).abs().max()) for name in one}
    return {name: value for name, value in differences.items() if value}


def main() -> None:
    """Train, and compare with what is shipped."""
    parser = argparse.ArgumentParser(description="Train the adapter minilm-16k again.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the parquet files that COUNTED names")
    parser.add_argument("--output", type=Path, default=Path("runs/weights"))
    asked = parser.parse_args()
    found = train(asked.data, asked.output)
    if not (SHIPPED / NAME).is_dir():
        print(f"{found} is new: no {NAME} is shipped")
        return
    others = compared(found, SHIPPED / NAME)
    print(f"{found}: {'the tensors that are shipped' if not others else json.dumps(others, indent=1)}")


if __name__ == "__main__":
    main()
