"""The paper's Figure 1: the spectrum of attention, by ``longform spectrum``, in two scales."""

from collections.abc import Sequence
from pathlib import Path

from longform_lab.report import Claim, Report
from longform_lab.spectrum.report import sections_of
from longform_lab.spectrum.results import RunResult
from longform_lab.spectrum.run import corpora_of, run_spectrum
from longform_lab.spectrum.settings import TEXTS as SPECTRUM_TEXTS
from longform_lab.spectrum.settings import Opener, SpectrumSettings, SpectrumView

TEXTS = {"tiny": 4, **SPECTRUM_TEXTS}
MODELS = {"tiny": ("bundled",), "small": ("bundled",), "paper": ("FacebookAI/roberta-base", "FacebookAI/roberta-large")}
MOST = 0.75  # of the sum
INDEX = 128  # of 512, as in the paper's heat map


def reproduce_figure1(
    scale: str,
    text: Sequence[str],
    output: Path,
    *,
    opener: Opener,
    models: Sequence[str] = (),
    device: str = "auto",
    text_field: str = "text",
    texts: int | None = None,
    max_length: int = 512,
    progress: bool = True,
) -> list[RunResult]:
    """Measure each model on each of ``text`` into ``output``: curves, heat maps and report of ``run_spectrum``.

    ``opener``: model name -> OpenedModel on ``device``. ``models``, ``texts``: in place of the scale's. Short texts are
    passed over, so that every map is of ``max_length`` tokens, as in the paper. Raises ConfigurationError for standard
    input ("-").
    """
    settings = SpectrumSettings(max_length=max_length, texts=texts or TEXTS[scale], min_tokens=max_length)
    return run_spectrum(
        models or MODELS[scale],
        corpora_of(text, text_field),
        settings,
        SpectrumView(index=_index(max_length)),
        output=output,
        opener=opener,
        progress=progress,
    )


def page_of_figure1(results: Sequence[RunResult]) -> Report:
    """Sections of the folder's own page, and the paper's claims."""
    sections = [
        section
        for found in results
        for section in sections_of(found, SpectrumView(index=_index(found.spectrum.cumulative.shape[-1])))
    ]
    every = [claim for found in results for claim in claims(found)]
    return Report("Figure 1: the spectrum of attention", [], sections, claims=every)


def claims(found: RunResult) -> list[Claim]:
    """Claims of the paper about its figure, beside one model's maps."""
    index = _index(found.spectrum.cumulative.shape[-1])
    by_layer = found.spectrum.cumulative[:, :, index - 1].mean(1).tolist()
    half = len(by_layer) // 2
    low, high = (sum(part) / max(len(part), 1) for part in (by_layer[:half], by_layer[half:]))
    whole = sum(by_layer) / len(by_layer)
    return [
        Claim(
            "a long tail: few singular values hold most of their sum",
            f"the first {index} of {found.spectrum.cumulative.shape[-1]:,} hold {whole:.0%}",
            whole >= MOST,
        ),
        Claim(
            "higher layers are of lower rank than lower ones",
            f"they hold {low:.0%} in the lower half of the layers, {high:.0%} in the upper",
            high > low,
        ),
    ]


def _index(length: int) -> int:
    """The singular value that is looked at: the 128th, or that at a quarter of fewer than 512."""
    return min(INDEX, max(1, length // 4))
