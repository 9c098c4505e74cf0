"""Measurements of selection: how near a converted encoder is to full attention, and far recall learned from nothing.

    python -m longform_lab.experiments.selection fidelity TEXTS.parquet --length 4096 --attention 64,16,0 64,16,10
    python -m longform_lab.experiments.selection recall --selected 0 2 8
    python -m longform_lab.experiments.selection needle TEXTS.parquet --length 16384 --documents 16 --selected -1 0 8

``fidelity`` converts the bundled all-MiniLM-L6-v2 for so many tokens, with window, tokens a slot and selected slots of
each ``--attention``, and compares hidden states with those of full attention with the same weights and positions. Times
are seconds of a process on one thread, the least of two passes, beside those of the first ``--attention``.
``recall``: pairs of a key and its value fill the first half of a text densely, keys are asked in the second; two layers
64 wide learn it, with full attention, with a window of 8 tokens and slots of 8, and with some slots selected.
``needle``: a sentence with a name and a number is planted in each text, and asked for among the text's passages of 128
tokens: those of ``minilm-16k``'s whole reading with so many selected slots, or of the original's, read alone.

Axes: B batch, n tokens, D hidden.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

import longform
from longform import LinformerEncoder
from longform.layers.attention import LinformerAttention
from longform.models.inference import pack_weights
from longform_lab.experiments.weights import NAME
from longform_lab.records import RECORDS, Record, append_records
from longform_text.data.text import read_documents
from longform_text.inference.chunks import encode_chunks
from longform_text.inference.encoders import Encoder

LENGTH, KEYS, PAIRS, ASKED, WIDTH = 128, 32, 32, 6, 64  # of the task of recall; as many values as keys
RATE, WARMUP, BATCH = 2e-3, 100, 16
FIRST_NAMES = ("Marlen", "Otto", "Ines", "Pavel", "Ruth", "Anders", "Lucia", "Tomas")
LAST_NAMES = ("Duquette", "Halloran", "Brandt", "Okafor", "Lindqvist", "Moreau", "Castellano", "Whitfield")


def documents(texts: list[str], tokenizer: Any, length: int, count: int) -> Iterator[Tensor]:
    """The first ``count`` texts of ``length`` tokens or more, cut to that: long (1, n)."""
    for document in read_documents(texts):
        ids = tokenizer(document.text, truncation=True, max_length=length, return_tensors="pt")["input_ids"]
        if ids.shape[1] == length:
            yield ids
            count -= 1
        if not count:
            return


@torch.inference_mode()
def states(model: nn.Module, given: list[Tensor]) -> tuple[Tensor, float]:
    """Hidden states (B, n, D) of ``given``, and seconds of the process for each."""
    best = float("inf")
    found = torch.empty(0)
    for _ in range(2):
        start = time.process_time()
        found = torch.cat([model(input_ids=ids).last_hidden_state for ids in given])
        best = min(best, time.process_time() - start)
    return found, best / len(given)


def fidelity(texts: list[str], length: int, count: int, attentions: list[tuple[int, int, int]]) -> Iterator[Record]:
    """A record for each of ``attentions``: window, tokens a slot, selected slots."""
    full = longform.convert("bundled", max_length=length, attention_window=length, memory_budget=None)
    given = list(documents(texts, full.tokenizer, length, count))
    expected, seconds = states(pack_weights(full.model.eval()), given)
    first = 0.0
    for window, run, selected in attentions:
        options: Any = {"attention_window": window, "projected_length": -(-length // run), "selected_slots": selected}
        model = longform.convert("bundled", max_length=length, projection="mean", **options).model.eval()
        found, own = states(pack_weights(model), given)
        first = first or own
        pooled = cosine_similarity(found.mean(dim=1), expected.mean(dim=1)).mean().item()
        yield Record(
            name="selection_fidelity",
            metrics={
                "token_cosine": cosine_similarity(found, expected, dim=-1).mean().item(), "pooled_cosine": pooled,
                "seconds": own, "time_ratio": own / first, "full_attention_seconds": seconds,
            },
            settings={
                "length": length, "documents": len(given), "window": window, "tokens_per_slot": run,
                "selected_slots": selected, "dtype": "float32", "threads": torch.get_num_threads(),
            },
            units={"seconds": "s", "full_attention_seconds": "s"},
        )  # fmt: skip


def task(batch: int) -> tuple[Tensor, Tensor]:
    """Token ids and labels long (B, n), -100 where nothing is asked: pairs fill the first half, keys are among noise in
    the second.
    """
    noise = LENGTH * 3 // 8
    ids, labels = torch.randint(2 * KEYS, 2 * KEYS + noise, (batch, LENGTH)), torch.full((batch, LENGTH), -100)
    half = LENGTH // 2
    for row in range(batch):
        keys, values = torch.randperm(KEYS)[:PAIRS], torch.randint(KEYS, 2 * KEYS, (PAIRS,))
        ids[row, : 2 * PAIRS : 2], ids[row, 1 : 2 * PAIRS : 2] = keys, values
        places = half + torch.randperm(half)[:ASKED]
        asked = torch.randint(PAIRS, (ASKED,))
        ids[row, places], labels[row, places] = keys[asked], values[asked] - KEYS
    return ids, labels


class Recaller(nn.Module):
    """An encoder over tokens that says a value for each."""

    def __init__(self, **attention: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(2 * KEYS + LENGTH * 3 // 8, WIDTH)
        self.encoder = LinformerEncoder(WIDTH, 2, 2, LENGTH, **attention)
        self.head = nn.Linear(WIDTH, KEYS)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids long (B, n) -> (B, n, KEYS)."""
        return self.head(self.encoder(self.words(ids)))


def recall(selected: int | None, seed: int, steps: int) -> Record:
    """Accuracy after so many steps with ``selected`` slots; None for full attention."""
    torch.manual_seed(seed)
    options: Any = {"attention_window": LENGTH} if selected is None else {"attention_window": 8}
    model = Recaller(tokens_per_slot=8, selected_slots=selected or 0, **options)
    optimizer = torch.optim.AdamW(longform.parameter_groups(model, lr=RATE), weight_decay=0.01)
    rates = [group["lr"] for group in optimizer.param_groups]
    for step in range(steps):
        share = min(1, (step + 1) / WARMUP) * (1 - step / steps)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        ids, labels = task(BATCH)
        loss = cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 249:
            print(f"selected {selected}, seed {seed}, step {step + 1}: loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        ids, labels = task(512)
        right = (model(ids).argmax(dim=-1) == labels)[labels >= 0].float().mean().item()
    settings = {
        "selected_slots": selected,
        "seed": seed,
        "steps": steps,
        "length": LENGTH,
        "window": options["attention_window"],
    }
    return Record(name="selection_recall", metrics={"accuracy": right, "loss": loss.item()}, settings=settings)


def planted(texts: list[str], length: int, count: int, tokenizer: Any) -> Iterator[tuple[str, str, int]]:
    """Texts of about ``length`` tokens with a sentence in them, what asks for it, and the character where it begins."""
    given = documents(texts, tokenizer, length, count)
    for number, ids in enumerate(given):
        text = tokenizer.decode(ids[0], skip_special_tokens=True)
        stops = [at + 2 for at in range(len(text)) if text.startswith(". ", at)]
        place = min(stops, key=lambda at: abs(at - len(text) * (number + 0.5) / count))
        name = f"{FIRST_NAMES[number % 8]} {LAST_NAMES[number // 8 % 8]}"
        sentence = f"The access code of {name} is {10_000 + 7919 * number % 90_000}. "
        yield text[:place] + sentence + text[place:], f"access code of {name}", place


def needle(texts: list[str], length: int, count: int, selected: int | None) -> Record:
    """Share of texts whose planted sentence is in the first passage, with ``selected`` slots; None: read alone."""
    encoder = Encoder.from_pretrained("bundled" if selected is None else NAME, dtype="float32")
    for layer in encoder.model.modules():
        if isinstance(layer, LinformerAttention):
            layer.selected_slots = selected or 0
    ranks = []
    for text, question, place in planted(texts, length, count, encoder.tokenizer):
        (found,) = encode_chunks(encoder, text, chunk_tokens=128, alone=selected is None)
        holds = np.flatnonzero((found.spans[:, 0] <= place) & (place < found.spans[:, 1]))[0]
        scores = found.vectors @ encoder.encode(question)
        ranks.append(int((scores > scores[holds]).sum()))
    return Record(
        name="selection_needle",
        metrics={"first": np.mean(np.array(ranks) == 0).item(), "mean_rank": 1 + np.mean(ranks).item()},
        settings={"selected_slots": selected, "length": length, "documents": len(ranks), "chunk_tokens": 128},
    )


def main() -> None:
    """Measure, print and append the records."""
    torch.set_num_threads(1)
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("fidelity", "recall", "needle"))
    made.add_argument("texts", nargs="*", help="of fidelity and needle: files with documents")
    made.add_argument("--length", type=int, default=4096, help="tokens of a document")
    made.add_argument("--documents", type=int, default=2)
    made.add_argument("--attention", nargs="+", default=["64,16,0", "64,16,10"], help="window,tokens a slot,selected")
    made.add_argument(
        "--selected",
        type=int,
        nargs="+",
        default=[-1, 0, 2, 8],
        help="of recall and needle; -1: full attention, or passages read alone",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--steps", type=int, default=2000)
    given = made.parse_args()
    if given.what == "fidelity":
        attentions: Any = [tuple(map(int, each.split(","))) for each in given.attention]
        records = fidelity(given.texts, given.length, given.documents, attentions)
    elif given.what == "needle":
        chosen = [None if each < 0 else each for each in given.selected]
        records = (needle(given.texts, given.length, given.documents, each) for each in chosen)
    else:
        records = (recall(None if each < 0 else each, given.seed, given.steps) for each in given.selected)
    for record in records:
        print(record.settings, record.metrics, flush=True)
        append_records(RECORDS / f"{record.name}.jsonl", [record])


if __name__ == "__main__":
    main()
