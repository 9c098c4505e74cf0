"""A pretrained encoder becomes a Longform, and embeds texts that are longer than it could read.

    python examples/convert_and_embed.py sentence-transformers/all-MiniLM-L6-v2 [text file ...]

Without arguments a tiny random BERT stands in, so that this runs anywhere; its vectors mean nothing.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import longform

LONG = "a long report on the river begins here . " + "the water of the river is cold . " * 300
TEXTS = ["the river is cold", LONG, LONG + "and the bridge is closed ."]


def tiny_bert() -> tuple[BertModel, PreTrainedTokenizerFast]:
    """A random BERT of 64 positions and a tokenizer of the words in TEXTS."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(" ".join(TEXTS).split())]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    bert = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=64, initializer_range=0.3, **sizes))
    return bert.eval(), PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


@torch.no_grad()
def embed(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[torch.Tensor, int]:
    """The mean hidden state (D,), scaled to length 1, and the number of tokens."""
    given = tokenizer(text, truncation=True, return_tensors="pt")
    states = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).last_hidden_state[0]
    return torch.nn.functional.normalize(states.mean(dim=0), dim=0), len(states)


def main() -> None:
    torch.manual_seed(0)
    arguments = sys.argv[1:]
    texts = [Path(name).read_text(encoding="utf-8") for name in arguments[1:]] or TEXTS
    bert, bert_tokenizer = (None, None) if arguments else tiny_bert()
    result = longform.convert(arguments[0] if bert is None else bert, tokenizer=bert_tokenizer, max_length=4096)
    result.model.eval()
    config = result.model.config
    print(
        f"{config.max_position_embeddings} tokens, {config.projected_length} slots, "
        f"{config.attention_window} tokens exact on each side"
    )
    vectors = []
    for text in texts:
        vector, tokens = embed(result.model, result.tokenizer, text)
        vectors.append(vector)
        print(f"{tokens:5d} tokens: {text[:50]!r}")
    print("cosines:", (torch.stack(vectors) @ torch.stack(vectors).T).round(decimals=3).tolist())
    if bert is not None:
        short = torch.dot(embed(bert, bert_tokenizer, texts[0])[0], vectors[0])
        print(f"cosine to the source on a text inside the window: {short:.6f}")


if __name__ == "__main__":
    main()
