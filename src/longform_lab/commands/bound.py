"""The command ``longform bound [MODEL]``: the k that the paper's Theorems 1 and 2 ask for, beside measured errors."""

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from longform.choices import SCALES
from longform.cli.arguments import add_device, add_settings, command, command_parser, one_of, print_next, print_table
from longform.errors import ConfigurationError
from longform_lab.commands.spectrum import eager_encoder

SUMMARY = "what the paper's theorems promise about k, beside measured errors"


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_lab.bounds.settings import BoundSettings

    made = command_parser(
        "bound",
        "k that Theorems 1 and 2 ask for, how often random projections fail beside the theorems' bound, and "
        "the error of attention against k: SVD, random, mean, convolution, fitted E and F. Without --output it prints "
        "k alone, in seconds. Without a model random maps are tried; with one, its attention as well, and the error "
        "against k. small: 3 layers and 3 heads of each, for the bundled model 2 minutes on one CPU core; paper: every "
        "layer and head, for a GPU. Time grows with layers x heads x n² x k x (trials + fit-steps). Interrupted, it "
        "goes on when it is called again.",
    )
    made.add_argument(
        "model",
        nargs="?",
        type=str | None,
        default=argparse.SUPPRESS,  # another default would win over --config
        help="folder or hub name of an encoder; bundled: the demo's MiniLM; none: random maps alone",
    )
    made.add_argument(
        "--text",
        type=list[str] | str | None,
        default=None,
        help="texts for the model: text, .jsonl or .parquet files, folders, or hf:NAME[:CONFIG]:SPLIT",
    )
    made.add_argument("--output", type=str | None, default=None, help="folder for records, pictures and report.html")
    made.add_argument("--text-field", default="text", help="field of a record that holds its text")
    add_device(made)
    made.add_argument("--scale", **one_of(SCALES), default="small", help="options below change it")
    add_settings(made, BoundSettings, preset=True)
    return made


def run(settings: Any) -> None:
    """Print k; with --output, measure too, and say whether projections fail no more often than the theorems allow."""
    from longform_lab.bounds.run import all_guarantees, run_bound

    chosen = _chosen(settings)
    name = getattr(settings, "model", None)
    if settings.text is not None and name is None:
        raise ConfigurationError("--text is for a model: name one before it (bundled, for example)")
    if settings.output is None:
        if name is not None:
            raise ConfigurationError("a model is measured into a folder: give --output; without a model k is printed")
        _print_k(all_guarantees(chosen, chosen.head_size))
        print_next(f"{command('bound', 'bundled', '--text', 'texts.jsonl', '--output', 'runs/bound')} (measures them)")
        return
    result = run_bound(
        _opened_model_and_texts(name, settings), chosen, output=Path(settings.output).expanduser(), progress=True
    )
    _print_k(result.guarantees)
    _print_findings(result)
    print(f"saved  {settings.output}/report.html, records.jsonl, plots/")
    print_next(f"open {settings.output}/report.html")


def _chosen(settings: Any) -> Any:
    """BoundSettings: the scale's, with the options that were given in their place."""
    from longform_lab.bounds.settings import SCALES as SETTINGS
    from longform_lab.bounds.settings import BoundSettings

    scale = SETTINGS[settings.scale]
    found = {field.name: getattr(settings, field.name) for field in fields(BoundSettings)}
    given = {name: value for name, value in found.items() if value is not None}
    for name, value in given.items():
        if isinstance(getattr(scale, name), list) and not isinstance(value, list):
            given[name] = [value]
    if given.get("length") and "projected_length" not in given:
        longest = max(given["length"])
        given["projected_length"] = [k for k in scale.projected_length if k <= longest] or [longest]
    return replace(scale, **given)


def _opened_model_and_texts(name: str | None, settings: Any) -> Any:
    """The BoundSubject of a model, None where only random maps are tried."""
    from longform.conversion.convert import local_source
    from longform.data.token_store import CorpusFiles
    from longform_lab.bounds.run import BoundSubject
    from longform_lab.spectrum.run import short_name

    if name is None:
        return None
    texts = [settings.text] if isinstance(settings.text, str) else settings.text
    if not texts:
        raise ConfigurationError(f"which texts is {name} to read? Give --text FILE")
    source = local_source(name)
    corpus = CorpusFiles(tuple(texts), settings.text_field).read_again("the next length")  # refuses standard input
    names = ", ".join(map(short_name, texts))
    return BoundSubject(short_name(name), names, eager_encoder(source, settings.device), corpus, source)


def _print_k(guarantees: Any) -> None:
    rows = [
        {
            "form": row.form,
            "n": row.length,
            "d": row.head_size,
            "epsilon": row.epsilon,
            "k": row.k,
            "bound on failing": "none given" if row.failure is None else f"{row.failure:.3g}",
            "vacuous": row.vacuous or "no",
        }
        for row in guarantees
    ]
    print_table("k that the theorems ask for", rows)


def _print_findings(result: Any) -> None:
    for kind, events in (("proved", ("row", "map", "all", "vector")), ("theorem 2 as constructed", ("construction",))):
        judged, broken = result.judged(events), result.broken(events)
        print(f"trials, {kind}: failures within the bound in {len(judged) - len(broken):,} of {len(judged):,} cells")
    if result.errors:
        ks = sorted({row.k for row in result.errors})  # three are printed: least, middle, largest
        rows = [
            {
                "layer": row.layer + 1,
                "method": row.method,
                "fitted to": row.fitted_to or "",
                "k": row.k,
                "error of the map": row.map_error,
                "error of the output": row.output_error,
            }
            for row in result.errors
            if row.k in (ks[0], ks[len(ks) // 2], ks[-1])
        ]
        print_table("relative error on held-out texts", rows)
        closest = result.closest_to_best()
        verdict = "the lowest: the nearest other map is" if closest >= 0 else "not the lowest: the best other map is"
        print(f"the SVD's map error is {verdict} {abs(closest):.2g} {'above' if closest >= 0 else 'below'} it")
