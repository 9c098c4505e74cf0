"""``longform doctor``: what this machine has for Longform, which packages are missing, which kernels serve on it."""

import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from longform.choices import DTYPES
from longform_text.cli.arguments import add_options, command, command_parser, print_next

AT_ONCE = True

SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 1,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "doctor", "Print versions, hardware, compiled kernels and missing extras, and a model's kernels.", texts=False
    )
    made.add_argument(
        "model", nargs="?", type=str | None, default=None, help="folder of a Longform, to print its kernels too"
    )
    add_options(
        made,
        ("kernels", bool, False, "print which kernel each operation of a small model uses, and why not another"),
        ("length", int, 2048, "tokens of the text that kernels are chosen for"),
        ("dtype", DTYPES, "auto", "auto: bfloat16 where it is fast"),
    )
    return made


def _print_kernels(settings: Any) -> None:
    for title, explanation in explanations(settings.model, settings.length, settings.dtype):
        print(f"\n{title}\n{explanation}")
    print()


def _lacks(lacking: dict[str, list[str]]) -> str:
    return "; ".join(f"{extra} lacks {', '.join(missing)}" for extra, missing in lacking.items())


def run(settings: Any) -> None:
    """Print it all; nothing is written."""
    from longform.errors import installing
    from longform_text.cli.beforehand import check_models
    from longform_text.settings import check_least

    check_least(settings, length=1)
    check_models(settings.model)
    from longform.functional.native.library import native_library
    from longform_text.facts import environment

    facts, library = environment(), native_library()
    extras = missing_packages()
    lacking = {extra: missing for extra, missing in extras.items() if missing}
    lines = {
        "longform": f"{facts['longform']}, code {facts['code']}",
        "software": ", ".join(f"{name} {facts[name]}" for name in ("torch", "transformers", "python")),
        "machine": f"{facts['machine']}, {facts['system']}",
        "device": f"{facts['device']}, matrix products in {facts['matrix products']}",
        "kernels": f"{facts['kernels']} ({'not compiled: slower paths serve' if library is None else library._name})",
        "extras": ", ".join(extra for extra in extras if extra not in lacking),
    }
    if lacking:
        lines["not ready"] = f"{_lacks(lacking)}: {installing(*lacking)}"
    for name, value in lines.items():
        print(f"{name:<12} {value}")
    if settings.kernels or settings.model:
        _print_kernels(settings)
    if settings.model:
        print_next(command("embed", settings.model, "texts.jsonl", "--output", "vectors.jsonl"))
    else:
        print_next(f"{command('demo')}, or {command('doctor', '--kernels')}")


def missing_packages() -> dict[str, list[str]]:
    """The packages of each extra that are not installed."""
    from packaging.requirements import Requirement

    found: dict[str, list[str]] = {}
    for requirement in map(Requirement, requires("longform") or []):
        for extra in re.findall(r'extra == "([^"]+)"', str(requirement.marker)):
            lacking = found.setdefault(extra, [])
            if requirement.name != "longform" and not _is_installed(requirement.name):
                lacking.append(requirement.name)
    return found


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def explanations(model: str | None, length: int, dtype: str) -> list[tuple[str, str]]:
    """Which kernels serve inference, and without a model of one's own training: titles and paragraphs."""
    import torch

    from longform.kernels import explain
    from longform.models.configuration_linformer import LinformerConfig
    from longform.models.modeling_linformer import LinformerModel
    from longform_text.inference.loading import pick_dtype

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = pick_dtype(dtype, device)
    if model is not None:
        loaded = LinformerModel.from_pretrained(model).eval().to(device, chosen)
        return [(f"{model}, {length} tokens, {chosen}, inference", str(explain(loaded, length=length)))]
    found = []
    kinds: dict[str, Any] = {
        "linear projection": {"projection": "linear"},
        "window": {"projection": "mean", "attention_window": 64, "short_convolution": 0},
    }
    for kind, options in kinds.items():
        config = LinformerConfig(
            vocab_size=100, max_position_embeddings=length, projected_length=max(1, length // 32), **SIZES, **options
        )
        small = LinformerModel(config).to(device)
        ids = {"input_ids": torch.zeros(1, length, dtype=torch.long, device=device)}
        with torch.autocast(device.type, torch.bfloat16, enabled=chosen == torch.bfloat16):
            training = str(explain(small.train(), ids))
        small = small.eval().to(chosen)
        found.append((f"{kind}, {length} tokens, {chosen}, inference", str(explain(small, length=length))))
        found.append((f"{kind}, {length} tokens, {chosen}, training", training))
    return found
