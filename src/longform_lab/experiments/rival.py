"""The original as the fair rival of ``minilm-16k``: it reads chunks only, and may weight repeated words alike.

``git show 75be9988:src/longform_lab/experiments/rival.py`` has the program that trained it by the same recipe, and
``rival_scores.py`` beside it the one that measured it.
"""

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
from longform_text.inference.encoders import Encoder

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
