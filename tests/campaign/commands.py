"""The commands that write, each on random models and texts so small that it takes about a second, or minutes."""

import json
import random
from pathlib import Path
from typing import Any

from campaign.counting import scaled
from json_lines import write_lines
from tiny_models import save_bert, save_longform

from longform import convert

WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]
PRESET = {
    "description": "1 layer, hidden 16",
    "tokenizer": {"kind": "wordpiece", "vocab_size": 60},
    "model": {
        "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 24,
        "max_position_embeddings": 16, "projected_length": 4, "projection": "linear",
    },
    "training": {
        "tokens_per_step": 64, "evaluations": 1, "dtype": "float32", "save_every_steps": 2, "max_steps": 8,
        "validation_tokens": 64,
    },
}  # fmt: skip
QUICK = {
    "embed": "embed {given}/longform {given}/texts.jsonl --output {place}/out.jsonl --batch-tokens 256",
    "embed to parquet": "embed {given}/longform {given}/texts.jsonl --output {place}/out.parquet --batch-tokens 256",
    "embed to parts": "embed {given}/longform {given}/texts.jsonl --output {place}/out --part-rows 16 "
    "--batch-tokens 256",
    "predict": "predict {given}/classifier {given}/texts.jsonl --output {place}/out.jsonl --batch-tokens 256",
    "convert": "convert {given}/bert {place}/out --max-length 64",
    "finetune": "finetune {given}/longform {given}/texts.jsonl --output {place}/out --max-steps 8 --save-every-steps 2 "
    "--eval_strategy steps --eval_steps 2 --validation-fraction 0.25 --batch-size 8 --dtype float32",
    "distill": "distill {given}/student {given}/bert {given}/texts.jsonl --output {place}/out --length 48 "
    "--min-length 16 --max-steps 8 --save-every-steps 2 --tokens-per-step 200 --heldout_documents 4 --dtype float32",
    "pretrain": "pretrain {given}/texts.jsonl --output {place}/out --cache {place}/cache --preset {given}/preset.yaml",
}
SLOW = {
    "compare": "compare --task digits --architectures linformer tfidf --steps 3 --output {place}/out",
    "reproduce figure1": "reproduce figure1 --text {given}/texts.jsonl --model {given}/bert --lengths 16 "
    "--output {place}/out",
    "reproduce figure3": "reproduce figure3a --text {given}/texts.jsonl --preset {given}/preset.yaml "
    "--seeds 0 --output {place}/out",
    "benchmark": "benchmark --sizes tiny --lengths 32 64 --competitors ours-linear --repeats 1 --threads 1 "
    "--output {place}/out",
    "demo": "demo --scale tiny --output {place}/out",
}
LINES = QUICK | SLOW
BUT_DEMO = [name for name in LINES if name != "demo"]  # which takes minutes: it is killed once, at a random moment


def trials_of(name: str) -> int:
    """How often a command is tried in one way: once, and in ``make campaign`` six times where it takes a second."""
    return scaled(1, 6) if name in QUICK else 1


def make_inputs(folder: Path, tokenizer: Any) -> Path:
    """The models and texts that all commands read."""
    names = {0: "bad", 1: "good"}
    for name in ("bert", "longform", "classifier"):
        (folder / name).mkdir(parents=True)
    save_bert(folder / "bert", tokenizer)
    save_longform(folder / "longform", tokenizer)
    save_longform(folder / "classifier", tokenizer, head="classification", id2label=names)
    convert(folder / "bert", max_length=64).save_pretrained(folder / "student")
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(20, 90))) for _ in range(120)]
    rows = [{"text": text, "label": names[text.count("good") > text.count("bad")]} for text in texts]
    write_lines(folder / "texts.jsonl", rows)
    (folder / "preset.yaml").write_text(json.dumps(PRESET))
    return folder


def command_line(name: str, given: Path, place: Path) -> list[str]:
    """The command's arguments, reading from ``given`` and writing below ``place``."""
    return LINES[name].format(given=given, place=place).split()
