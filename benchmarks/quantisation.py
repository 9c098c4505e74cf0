"""What int8 loses: the bundled all-MiniLM-L6-v2, converted, on licence texts; appends a record.

::

    python -m benchmarks.quantisation
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

import longform
from benchmarks.records import RECORDS, Record, append_record
from longform.data.bundled import bundled_encoder_folder, licence_documents

TEXTS, MAX_LENGTH = 16, 1_024


def longest_texts() -> list[str]:
    """Licence texts, the longest of every so many."""
    texts = [document.text for document in licence_documents()]
    step = len(texts) // TEXTS
    return [max(texts[i * step : (i + 1) * step], key=len) for i in range(TEXTS)]


@torch.inference_mode()
def embeddings(model: Any, inputs: list[Any]) -> Tensor:
    """Mean-pooled hidden states (texts, D)."""
    return torch.cat([model(**each).last_hidden_state.mean(1) for each in inputs])


def main() -> None:
    """Measure, append, print."""
    converted = longform.convert(str(bundled_encoder_folder()), max_length=MAX_LENGTH)
    model, tokenizer = converted.model.eval(), converted.tokenizer
    inputs = [tokenizer(text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt") for text in longest_texts()]
    expected = embeddings(model, inputs)
    found = embeddings(longform.quantize(model), inputs)
    cosines = cosine_similarity(found.double(), expected.double())
    record = Record(
        name="int8",
        settings={
            "model": "all-MiniLM-L6-v2", "texts": TEXTS, "max_length": MAX_LENGTH,
            "window": model.config.attention_window,
        },
        metrics={
            "cosine": float(cosines.mean()), "lowest_cosine": float(cosines.min()),
            "tokens": sum(each["input_ids"].numel() for each in inputs),
        },
    )  # fmt: skip
    append_record(RECORDS / "int8.jsonl", record)
    print(record.metrics)


if __name__ == "__main__":
    main()
