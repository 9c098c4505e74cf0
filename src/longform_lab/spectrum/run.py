"""``longform spectrum``: models and corpora measured one after another into a folder with records, pictures, a report.

What is measured is a file for each model and corpus, written when it is complete, and every few minutes before that the
sums so far; called again, only what is missing is measured, and pictures, k and the report are made anew.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from longform.errors import ConfigurationError, require
from longform.files import check_same, open_run_folder, sole_output
from longform_lab.spectrum.heads import head_similarity
from longform_lab.spectrum.measure import measure_spectrum
from longform_lab.spectrum.report import report_spectra
from longform_lab.spectrum.results import RunResult, read_result, write_result
from longform_lab.spectrum.running_sums import SumsFile
from longform_lab.spectrum.settings import Opener, SpectrumSettings, SpectrumView
from longform_lab.spectrum.views import draw, write_chosen, write_records
from longform_text.data.subject import subject_identity
from longform_text.data.token_store import CorpusFiles, input_paths
from longform_text.facts import commit, environment, now

IDENTITY, RUNS, UNFINISHED = "spectrum.json", "runs", "unfinished"


def run_spectrum(
    models: Sequence[str],
    corpora: Sequence[CorpusFiles],
    settings: SpectrumSettings,
    view: SpectrumView,
    *,
    output: Path,
    opener: Opener,
    progress: bool = False,
) -> list[RunResult]:
    """Measure each model on each corpus, of one source each, into ``output``; what the folder has already is not
    measured again.

    ``opener``: model name -> OpenedModel. Raises ConfigurationError where the folder holds other settings, or another
    model or corpus under the same name, or ``view`` asks for what the texts cannot give, MissingDependencyError without
    matplotlib, and what ``measure_spectrum`` raises.
    """
    _check_view(view, settings.max_length, f"max_length={settings.max_length}")
    require("matplotlib", extra="train")  # before hours of measuring, not after
    commit()  # of the code that runs, whatever is checked out by the end
    with sole_output(output, inputs=input_paths((*models, *corpora)), folder=True) as folder:
        return _run(models, corpora, settings, view, output=folder, opener=opener, progress=progress)


def _run(
    models: Sequence[str],
    corpora: Sequence[CorpusFiles],
    settings: SpectrumSettings,
    view: SpectrumView,
    *,
    output: Path,
    opener: Opener,
    progress: bool,
) -> list[RunResult]:
    open_run_folder(output, IDENTITY, asdict(settings), what="spectra")
    planned = [(*pair, subject_identity(pair[0], pair[1])) for pair in _planned(models, corpora, output)]
    for *_, path, subject in planned:  # all of them before the first is measured
        if path.exists():
            check_same(path, read_result(path).subject, subject)
    for model, corpus, path, subject in planned:
        if not path.exists():
            sums = SumsFile(output / UNFINISHED / f"{path.stem}.safetensors", subject)
            write_result(path, _measure(model, corpus, path.stem, settings, opener, progress, sums))
            sums.path.unlink(missing_ok=True)
    results = [read_result(path) for path in sorted((output / RUNS).glob("*.jsonl"))]
    for result in results:
        longest = result.spectrum.longest
        _check_view(view, longest, f"the {longest} tokens of the longest text of {result.corpus}")
    for result in results:
        write_chosen(result, view, output)
    draw(results, view, output)
    write_records(results, view, asdict(settings), output)
    report_spectra(results, view, output, asdict(settings))
    return results


def corpora_of(sources: Sequence[str], text_field: str = "text") -> list[CorpusFiles]:
    """Each file, folder or ``hf:`` data set as a corpus of its own. Raises ConfigurationError for standard input."""
    again = "the next model or after an interruption"
    return [CorpusFiles((source,), text_field).read_again(again) for source in sources]


def short_name(name: str) -> str:
    """Short name of a folder, file or hub name in titles: its last part, without suffix."""
    path = Path(name.rstrip("/"))
    parts = [part for part in reversed(path.parts) if part not in ("model", "encoder", "/", ".")]
    last = parts[0] if parts else name
    return Path(last).stem if Path(last).suffix in (".jsonl", ".ndjson", ".parquet", ".txt", ".md", ".text") else last


def _planned(
    models: Sequence[str], corpora: Sequence[CorpusFiles], output: Path
) -> Iterator[tuple[str, CorpusFiles, Path]]:
    """Every pair, the models in the outer loop, with its file."""
    pairs = [(model, corpus) for model in models for corpus in corpora]
    whole = (f"{short_name(model)}-{short_name(corpus.sources[0])}" for model, corpus in pairs)
    names = [re.sub(r"[^\w.-]+", "-", name) for name in whole]  # of files too
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigurationError(
            f"several models or corpora would be called {', '.join(doubled)} in the report: rename a folder or file"
        )
    for (model, corpus), name in zip(pairs, names, strict=True):
        yield model, corpus, output / RUNS / f"{name}.jsonl"


def _measure(
    model: str,
    corpus: CorpusFiles,
    name: str,
    settings: SpectrumSettings,
    opener: Opener,
    progress: bool,
    sums: SumsFile,
) -> RunResult:
    began, resumed = time.perf_counter(), sums.path.exists()
    opened = opener(model)
    spectrum, texts = measure_spectrum(opened, corpus, settings, progress=progress, name=name, kept=sums)
    notes = ["it was interrupted, and the time is that since then"] if resumed else []
    similarity = head_similarity(opened.model, texts) if settings.head_texts else None
    if spectrum.shortest < settings.max_length:
        notes.append(
            f"texts have {spectrum.shortest:,} to {spectrum.longest:,} tokens; one of m tokens has a share of 100 % "
            "from index m on, so that shorter texts look lower in rank: --min-tokens passes them over"
        )
    seconds = time.perf_counter() - began
    facts = {"measured": now(), **environment(opened.model.device, opened.model.dtype)}
    titles, subject = (short_name(model), short_name(corpus.sources[0])), dict(sums.subject)
    return RunResult(name, *titles, spectrum, similarity, seconds, notes, subject, facts)


def _check_view(view: SpectrumView, most: int, said: str) -> None:
    if max(view.indices) > most:
        raise ConfigurationError(
            f"index {max(view.indices)} is above {said}: maps have no more singular values than tokens"
        )
