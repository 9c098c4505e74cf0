"""The demo's encoder and texts: licence texts with all-MiniLM-L6-v2, or, in tests, generated ones with a tiny BERT."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from longform.data.bundled import LicenceTexts, bundled_encoder_folder, licence_texts
from longform.data.text import Document
from longform.runs.files import read_json, reading, write_json
from longform.training.labels import Examples
from longform_lab.demo.scale import Scale

TINY_LABELS = {"fruit": ("apple", "pear", "plum"), "metal": ("iron", "zinc", "tin"), "river": ("rhine", "nile", "oder")}
TINY_FILLER = ("the", "of", "and", "to", "in", "is")


@dataclass(frozen=True)
class Material:
    """``encoder``: its folder. ``train`` is what fine-tuning may learn from, ``unlabelled`` what healing reads.

    A text is (id, text, label). ``facts``: numbers about the data for the report.
    """

    encoder: str
    train: list[tuple[str, str, str]]
    validation: list[tuple[str, str, str]]
    test: list[tuple[str, str, str]]
    unlabelled: list[str]
    labels: list[str]
    facts: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Material":
        """Read what ``save`` wrote. Raises CheckpointError when it is damaged."""
        values = read_json(path, way_out="start anew with --restart")
        with reading(path, way_out="start anew with --restart"):
            for part in ("train", "validation", "test"):
                values[part] = [tuple(text) for text in values[part]]
            return cls(**values)


def examples(texts: Sequence[tuple[str, str, str]]) -> Examples:
    """Texts and labels as fine-tuning takes them."""
    return Examples([text for _, text, _ in texts], [label for _, _, label in texts])


def make_material(scale: Scale, *, seed: int, folder: Path) -> Material:
    """Read (full) or generate (tiny, its encoder in ``folder``) what the demo works on."""
    tiny = scale.name == "tiny"
    found = _tiny_texts(seed) if tiny else licence_texts(seed=seed)
    taken = spread(found.train, scale, seed)
    unlabelled = [document.text for document in (*found.train, *found.unlabelled)]
    facts = {
        "texts": len(found.train) + len(found.validation) + len(found.test), "train": len(found.train),
        "groups": found.groups, "largest_group": found.largest_group, "taken": len(taken),
        "unlabelled": len(unlabelled),
    }  # fmt: skip
    return Material(
        encoder=str(_tiny_encoder(scale, seed, folder) if tiny else bundled_encoder_folder()),
        train=[_triple(document) for document in taken],
        validation=[_triple(document) for document in every_nth(found.validation, scale.validation_texts)],
        test=[_triple(document) for document in found.test], unlabelled=unlabelled, labels=found.labels, facts=facts,
    )  # fmt: skip


def _triple(document: Document) -> tuple[str, str, str]:
    return document.id, document.text, document.fields["category"]


def spread(documents: Sequence[Document], scale: Scale, seed: int) -> list[Document]:
    """Texts in an order drawn by ``seed``, without those over the most of a near-duplicate group.

    Categories stay as frequent as they are: a balanced choice teaches wrong frequencies, which cost ten points.
    """
    order = list(documents)
    random.Random(f"spread {seed}").shuffle(order)
    groups: Counter[int] = Counter()
    taken = []
    for document in order:
        group = document.fields["group"]
        if groups[group] < scale.texts_per_group:
            groups[group] += 1
            taken.append(document)
    return taken


def every_nth(documents: Sequence[Document], count: int) -> list[Document]:
    """About ``count`` texts at even distances in the order of categories: each category in proportion."""
    order = sorted(documents, key=lambda document: (document.fields["category"], document.id))
    step = max(1.0, len(order) / count)
    return [order[int(place * step)] for place in range(min(count, len(order)))]


def _tiny_texts(seed: int) -> LicenceTexts:
    """Texts whose label is a word that comes late."""
    picks = random.Random(f"tiny {seed}")
    documents = []
    for number in range(90):
        label = sorted(TINY_LABELS)[number % len(TINY_LABELS)]
        words = picks.choices(TINY_FILLER, k=picks.randrange(10, 80)) + picks.choices(TINY_LABELS[label], k=8)
        documents.append(Document(f"text-{number}", " ".join(words), {"category": label, "group": number}))
    return LicenceTexts(documents[:54], documents[54:66], documents[66:], [], sorted(TINY_LABELS), 90, 1)


def _tiny_encoder(scale: Scale, seed: int, folder: Path) -> Path:
    """An encoder that has learned nothing."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TINY_FILLER, *chain.from_iterable(TINY_LABELS.values())]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words), hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=36,
        max_position_embeddings=scale.original_length,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=scale.original_length,
    ).save_pretrained(folder)  # fmt: skip
    return folder
