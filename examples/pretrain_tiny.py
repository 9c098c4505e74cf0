"""Masked-language modelling from scratch with Hugging Face's Trainer, on a handful of sentences.

Needs: pip install -e ".[train]" in the clone. A real run: your tokenizer and corpus, and the sizes in the comments.

    python examples/pretrain_tiny.py [folder for the model]
"""

import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

import longform

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "the rain falls on the hill and the river runs to the sea",
    "the sun shines on the sea and the wind comes from the hill",
    "snow falls on the hill in winter and melts in the sun in spring",
    "the river runs from the hill to the lake and from the lake to the sea",
]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(TEXTS, trainers.WordLevelTrainer(special_tokens=SPECIAL))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def main() -> None:
    set_seed(0)
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    tokenizer = make_tokenizer()
    model = longform.LinformerForMaskedLM(
        longform.LinformerConfig(
            vocab_size=len(tokenizer),  # 50_000
            hidden_size=64,  # 768
            num_hidden_layers=2,  # 12
            num_attention_heads=4,  # 12
            intermediate_size=128,  # 3072
            max_position_embeddings=32,  # 4096
            projected_length=16,  # 256
            projection="linear",  # the paper's learned E and F
        )
    )
    arguments = TrainingArguments(
        folder, max_steps=250, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=100, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    Trainer(
        model, arguments, train_dataset=[tokenizer(text) for text in TEXTS * 8],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=0),
    ).train()  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, saved in {folder}")
    loaded = AutoModelForMaskedLM.from_pretrained(folder)
    fill = pipeline("fill-mask", model=loaded, tokenizer=tokenizer, top_k=1)
    for text in ("the rain falls on the hill and the river runs to the [MASK]", "[MASK] falls on the hill in winter"):
        answer = fill(text)[0]
        print(f"{text} -> {answer['token_str']} ({answer['score']:.2f})")


if __name__ == "__main__":
    main()
