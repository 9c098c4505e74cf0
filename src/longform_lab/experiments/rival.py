"""The original trained as ``minilm-16k`` was, but reading chunks alone: its fair rival.

    python -m longform_lab.experiments.rival --data ../shared/data --output runs/rival

Pairs, steps, seeds, rank, learning rate and the weights of repeated words over the whole text are those of
``longform_lab.experiments.weights``; a token sees the 512 tokens of its chunk in place of a window and slots. About an
hour on one CPU core; interrupted, the same command goes on. ``runs/rival/aligned`` is the result.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from longform.conversion.local import local_source
from longform.conversion.sublinear_tf import SublinearTF
from longform.inference.encoders import Encoder
from longform.training.alignment.job import AlignmentJob
from longform.training.alignment.model import OpenedModel, SentenceModel, open_sentence_model
from longform.training.alignment.sources import open_source
from longform.training.engine.run_folder import place_of_run
from longform.training.engine.trainer import carry_out, current_process
from longform_lab.experiments.weights import SETTINGS, sources

CHUNK = 512  # tokens, special ones included
LIMIT = 65_536  # tokens of a text; more than any here has


class ChunkReader(nn.Module):
    """An encoder that reads texts of any length in chunks of ``size`` tokens, each alone between special tokens.

    The hidden states (B, n, hidden) of a text are those of its tokens in their chunks; the first special token's are
    the first chunk's, the last one's the last chunk's. A text of one chunk has the encoder's own states.
    """

    def __init__(self, encoder: PreTrainedModel, size: int = CHUNK) -> None:
        super().__init__()
        self.encoder, self.size = encoder, size
        self.config, self.device, self.name_or_path = encoder.config, encoder.device, encoder.name_or_path

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **others: Any) -> BaseModelOutput:
        """Last hidden states of texts that begin and end with one special token each; zeros in padding."""
        pieces, counts = [], []
        for ids, length in zip(input_ids, attention_mask.sum(dim=1).tolist(), strict=True):
            parts = ids[1 : length - 1].split(self.size - 2)
            pieces += [torch.cat([ids[:1], part, ids[length - 1 : length]]) for part in parts]
            counts.append(len(parts))
        read, texts = iter(self._read(pieces)), []
        for count in counts:
            own = [next(read) for _ in range(count)]
            texts.append(torch.cat([own[0][:1], *(part[1:-1] for part in own), own[-1][-1:]]))
        return BaseModelOutput(last_hidden_state=pad_sequence(texts, batch_first=True))

    def _read(self, pieces: list[Tensor]) -> list[Tensor]:
        """Hidden states of each piece, read with those of its length: most are whole chunks, and nothing is padded."""
        found: dict[int, Tensor] = {}
        for length in {len(piece) for piece in pieces}:
            places = [place for place, piece in enumerate(pieces) if len(piece) == length]
            states = self.encoder(input_ids=torch.stack([pieces[place] for place in places])).last_hidden_state
            found |= dict(zip(places, states, strict=True))
        return [found[place] for place in range(len(pieces))]


def in_chunks(encoder: Encoder, model: PreTrainedModel, size: int = CHUNK) -> Encoder:
    """The encoder with ``model`` over chunks of ``size`` tokens, special ones included."""
    return replace(encoder, model=ChunkReader(model, size), limit=LIMIT)


def weighted_original(folder: Path) -> Path:
    """The original with the weights of repeated words before its mean, saved in ``folder``."""
    if not folder.is_dir():
        found = SentenceTransformer(local_source("bundled"), device="cpu")
        modules = list(found)
        place = next(at for at, module in enumerate(modules) if type(module).__name__ == "Pooling")
        made = type(found)(modules=[*modules[:place], SublinearTF(), *modules[place:]], device="cpu")
        made.save_pretrained(str(folder), create_model_card=False)
    return folder


def train(data: Path, output: Path) -> Path:
    """The folder of the trained original."""
    process = current_process(SETTINGS.device)
    chosen, aligned = sources(data), output / "aligned"
    with place_of_run(aligned, (), process) as folder:
        opened = open_sentence_model(weighted_original(output / "original"), process.device)
        reader = in_chunks(opened.trained.sides["plain"], opened.encoder)
        opened = OpenedModel(SentenceModel(opened.origin.sentences, reader), opened.before, *opened[2:])
        characters = 4 * (SETTINGS.max_length or LIMIT)
        pairs = [open_source(each, characters=characters, heldout=0, seed=SETTINGS.seed) for each in chosen]
        job = AlignmentJob(opened, pairs, [each.weight for each in chosen], SETTINGS, process)
        carry_out(job, folder, kept=True, restart=False, shown=True)
    return aligned


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train the original over chunks by the recipe of minilm-16k.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the parquet files that sources() names")
    parser.add_argument("--output", type=Path, default=Path("runs/rival"))
    asked = parser.parse_args()
    print(train(asked.data, asked.output))


if __name__ == "__main__":
    main()
