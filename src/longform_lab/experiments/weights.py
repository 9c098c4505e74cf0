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
from longform.conversion.adapter import WEIGHTS
from longform.conversion.local import local_source
from longform.conversion.shipped import ACCOUNT, HUB_NAME, SHIPPED
from longform_lab.experiments.conversations import conversations
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource

NAME = "minilm-16k"
SETTINGS = AlignmentSettings(
    max_length=4096,
    max_steps=60,
    learning_rate=1e-3,
    lora_rank=8,
    documents_per_step=10,
    queries_per_document=4,
    heldout_documents=0,
    bf16=False,
)


def sources(data: Path) -> list[AlignmentSource]:
    """Questions about conversations (two steps of three), summaries of papers, parts of articles and contracts.

    The last 200 papers stay a test.
    """
    posts = pq.read_table(data / "newsgroups_train.parquet").to_pylist()
    return [
        *(
            AlignmentSource(pairs=[{"query": asked, "document": one.text} for one in made for asked in one.questions])
            for made in conversations(posts).values()
        ),
        AlignmentSource(
            pairs=str(data / "scisummnet_train.parquet"),
            query_field="summary",
            document_field="paper_without_abstract",
            first=500,
        ),
        AlignmentSource(
            texts=str(data / "wikipedia_long.parquet"),
            title_field="title",
            first=4000,
            make=["sentence", "passage", "title", "halves"],
        ),
        AlignmentSource(texts=str(data / "contracts_train.parquet"), make=["sentence", "passage"], weight=0.5),
    ]


def train(data: Path, output: Path) -> Path:
    """The folder of the adapter."""
    converted = output / "converted"
    if not converted.is_dir():
        made = longform.convert(local_source("bundled"), projection="mean", max_length=16384, sublinear_tf=True)
        made.save_pretrained(converted)
    longform.align(converted, sources(data), SETTINGS, output=output / "aligned")
    adapter = output / "aligned" / "adapter"
    account = json.loads((adapter / ACCOUNT).read_text(encoding="utf-8"))
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
    parser.add_argument("--data", type=Path, required=True, help="folder with the parquet files that sources() names")
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
