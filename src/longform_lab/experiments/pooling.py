"""What makes one vector of a long document's states: plain mean, rare tokens, repeated tokens less; nothing is trained.

    python -m longform_lab.experiments.pooling qmsum-val --data FOLDER --longform runs/aligned --states runs/states

Each model reads the documents and queries once; ``--states`` keeps what it read (float16), and any weighting is then a
matter of seconds. Weights of tokens: none, by a mixture of texts without meetings (that of ``weights.py``), or
by QMSum's training meetings. A token that a text has c times weighs c ("mean"), sqrt(c), or 1 ("once") in all. Each
(set, model, tokens, repetition) appends a record to benchmarks/records/pooling.jsonl.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from longform.conversion.idf import idf
from longform.evaluation.retrieval import cosine_ranker, ranking_scores
from longform.evaluation.retrieval_data import read_retrieval
from longform.inference.encoders import Encoder
from longform_lab.experiments.long_retrieval import SETS
from longform_lab.experiments.weights import counted
from longform_lab.records import RECORDS, Record, append_record, read_records

REPEATED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda count: np.ones(len(count)), "sqrt": lambda count: count**-0.5, "once": lambda count: 1 / count,
}  # fmt: skip
TOKENS = ("all alike", "idf of a mixture", "idf of meetings")
States = tuple[np.ndarray, np.ndarray]  # token ids (n,), last hidden states (n, D)


def read(encoder: Encoder, texts: Sequence[str], folder: Path) -> Iterator[States]:
    """The states of each text, kept in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, text in enumerate(tqdm(texts, desc=f"reading into {folder}")):
        file = folder / f"{place}.npz"
        if not file.exists():
            inputs = encoder.tokenizer(text, truncation=True, max_length=encoder.limit, return_tensors="pt")
            with torch.inference_mode():
                states = encoder.model(**inputs).last_hidden_state[0]
            unfinished = file.with_suffix(".part.npz")
            np.savez(unfinished, ids=inputs["input_ids"][0].numpy(), states=states.half().numpy())
            unfinished.rename(file)
        kept = np.load(file)
        yield kept["ids"], kept["states"].astype(np.float32)


def vector(states: States, weights: np.ndarray, repeated: str) -> np.ndarray:
    """(D,): the sum of states by the weights (vocabulary,) of their tokens, and by how often the text has them."""
    ids, values = states
    _, place, counts = np.unique(ids, return_inverse=True, return_counts=True)
    share = weights[ids] * REPEATED[repeated](counts[place].astype(np.float64))
    return share @ values


def token_weights(data: Path, encoder: Encoder) -> dict[str, np.ndarray]:
    """(vocabulary,) of each of TOKENS."""
    size = encoder.model.config.vocab_size
    meetings = pd.read_parquet(data / "qmsum_train_meetings.parquet")["text"].tolist()
    made = (np.ones(size), *(idf(texts, encoder.tokenizer, size) for texts in (counted(data), meetings)))
    return dict(zip(TOKENS, made, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what lacks a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--longform", nargs="+", required=True, help="folders; their names are the records'")
    parser.add_argument("--states", type=Path, default=Path("runs/states"))
    parser.add_argument("--records", type=Path, default=RECORDS / "pooling.jsonl")
    options = parser.parse_args(arguments)
    options.records.touch()
    queries, documents = SETS[options.set](options.data)
    given = read_retrieval(queries, documents)
    for folder in options.longform:
        encoder, name = Encoder.from_pretrained(folder), Path(folder).name
        place = options.states / options.set / name
        asked = list(read(encoder, given.questions, place / "queries"))
        answers = list(read(encoder, [each.text for each in given.documents], place / "documents"))
        for tokens, weights in token_weights(options.data, encoder).items():
            wanted = np.stack([vector(each, weights, "mean") for each in asked])
            for repeated in REPEATED:
                found = np.stack([vector(each, weights, repeated) for each in answers])
                scores = ranking_scores(cosine_ranker(wanted, found), given.relevant, documents=len(found))
                settings = {"data": options.set, "model": name, "tokens": tokens, "repeated": repeated}
                if any(row.settings == settings for row in read_records([options.records])):
                    continue
                each = [np.round(100 * scores.each, 2).tolist()]
                metrics = {"ndcg_at_10": 100 * scores.ndcg, "per_query": each}
                append_record(options.records, Record(name="pooling", settings=settings, metrics=metrics))
                print(settings, f"nDCG@10 {100 * scores.ndcg:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
