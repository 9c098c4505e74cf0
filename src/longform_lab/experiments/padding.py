"""How much of what ``longform embed`` and ``predict`` compute is padding, on licence texts in random order.

::

    python -m longform_lab.experiments.padding
"""

import random
from collections.abc import Iterator

from tqdm import tqdm
from transformers import AutoTokenizer

from longform.data.batching import tokenized_batches
from longform.data.bundled import bundled_encoder_folder, licence_documents
from longform.inference.strategies import DEFAULT_BATCH_TOKENS
from longform_lab.records import RECORDS, Record, append_record

LENGTHS = (512, 1_024, 4_096, 16_384)


def shares(texts: list[str]) -> Iterator[Record]:
    """A record for each length at which texts are cut."""
    tokenizer = AutoTokenizer.from_pretrained(str(bundled_encoder_folder()))
    for limit in LENGTHS:
        real = computed = batches = 0
        for batch in tokenized_batches(texts, tokenizer, max_length=limit, max_tokens_per_batch=DEFAULT_BATCH_TOKENS):
            real += sum(batch.tokens)
            computed += batch.input_ids.numel()
            batches += 1
        yield Record(
            name="padding",
            settings={"max_length": limit, "tokens_per_batch": DEFAULT_BATCH_TOKENS, "texts": len(texts)},
            metrics={"tokens": real, "padded_share": 1 - real / computed, "batches": batches},
        )


def main() -> None:
    """Count, append, print."""
    texts = [document.text for document in licence_documents()]
    random.Random(0).shuffle(texts)
    for record in tqdm(shares(texts), total=len(LENGTHS), desc="batching", unit="length"):
        append_record(RECORDS / "padding.jsonl", record)
        tqdm.write(f"{record.settings} {record.metrics}")


if __name__ == "__main__":
    main()
