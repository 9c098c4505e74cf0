"""``longform spectrum MODEL...``: singular values of attention maps, k chosen by them, and similar heads."""

from pathlib import Path
from typing import Any, Literal

from longform.choices import SCALES
from longform_text.cli.arguments import (
    add_device,
    add_settings,
    chosen_settings,
    command,
    command_parser,
    field_helps,
    one_of,
    print_next,
    print_table,
)

SUMMARY = "singular values of attention maps, and the k they suggest"


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_lab.spectrum.settings import SpectrumSettings, SpectrumView

    made = command_parser(
        "spectrum",
        "Measure the spectrum of attention (Linformer, Figure 1): the share of the largest singular values, the k that "
        "each layer needs, and whether heads attend alike. --scale small (100 texts of 512 tokens) takes about 2 "
        "minutes on two CPU cores, 4 on one, for 6 layers and 12 heads. Time grows with layers x heads x texts x "
        "tokens³. After an interruption, the same command continues; sums are saved every two minutes.",
        example="bundled --text texts.jsonl --output runs/spectrum",
    )
    made.add_argument("models", nargs="+", help='folders or hub names of encoders; "bundled": the demo\'s MiniLM')
    made.add_argument(
        "--text",
        nargs="+",
        required=True,
        help="corpora, each measured on its own: text, .jsonl or .parquet files, folders, or hf:NAME[:CONFIG]:SPLIT",
    )
    made.add_argument("--output", type=str, required=True, help="folder for records, pictures, k and report.html")
    made.add_argument("--text-field", default="text", help="field of a record that holds its text")
    add_device(made)
    made.add_argument(
        "--scale", **one_of(SCALES), default="small", help="small: 100 texts of each corpus; paper: 10,000, for a GPU"
    )
    made.add_argument(
        "--texts",
        type=int | Literal["scale"] | None,
        default="scale",
        help=f"{field_helps(SpectrumSettings)['texts']}; scale: as many as it says",
    )
    add_settings(made, SpectrumSettings, but=("texts",))
    add_settings(made, SpectrumView)
    return made


def run(settings: Any) -> None:
    """Measure, and print how much the largest singular values hold."""
    from longform_lab.spectrum.settings import TEXTS, SpectrumSettings, SpectrumView
    from longform_text.cli.beforehand import check_models, check_texts

    check_models(*settings.models)
    check_texts(*settings.text)
    view = chosen_settings(SpectrumView, settings)
    texts = TEXTS[settings.scale] if settings.texts == "scale" else settings.texts
    how = chosen_settings(SpectrumSettings, settings, texts=texts)
    from longform.conversion.local import local_source
    from longform_lab.spectrum.run import corpora_of, run_spectrum

    results = run_spectrum(
        [local_source(name) for name in settings.models],
        corpora_of(settings.text, settings.text_field),
        how,
        view,
        output=Path(settings.output).expanduser(),
        opener=lambda name: eager_encoder(name, settings.device),
        progress=True,
    )
    for result in results:
        print_table(f"{result.model} on {result.corpus}, {result.spectrum.texts:,} texts", _rows(result, view))
    print(f"saved  {settings.output}/report.html; k for longform convert: {settings.output}/projected_length/")
    k = Path(settings.output) / "projected_length" / f"{results[0].name}-per-layer.json"
    print_next(command("convert", local_source(settings.models[0]), "converted", "--projected-length", k))


def eager_encoder(name: str, device: str) -> Any:
    """An OpenedModel that gives attention weights."""
    from transformers import AutoModel

    from longform_lab.spectrum.settings import OpenedModel
    from longform_text.inference.loading import load_pretrained, token_limit

    model, tokenizer = load_pretrained(AutoModel, name, device=device)
    if model.config.model_type != "linformer":
        model.set_attn_implementation("eager")
    return OpenedModel(model, tokenizer, token_limit(model, tokenizer))


def _rows(result: Any, view: Any) -> list[dict[str, Any]]:
    from longform_lab.spectrum.views import chosen_per_layer

    chosen = chosen_per_layer(result, view)
    return [
        {
            "layer": layer + 1,
            **{f"share at {index}": float(curves[:, index - 1].mean()) for index in view.indices},
            "effective rank": float(result.spectrum.effective_rank[layer].mean()),
            **{name: ks[layer] for name, ks in chosen.items()},
        }
        for layer, curves in enumerate(result.spectrum.cumulative)
    ]
