"""The paper's Figure 1: the spectrum of attention, by ``longform spectrum``, in two scales."""

from collections.abc import Sequence
from pathlib import Path

from longform.data.token_store import CorpusFiles
from longform.spectrum.results import RunResult
from longform.spectrum.run import Corpus, run_spectrum
from longform.spectrum.settings import Opener, SpectrumSettings, SpectrumView

MODELS = {"small": ("bundled",), "paper": ("FacebookAI/roberta-base", "FacebookAI/roberta-large")}
TEXTS = {"small": 100, "paper": 10_000}
INDEX = 128  # of 512, as in the paper's heat map


def reproduce_figure1(
    scale: str, text: Sequence[str], output: Path, *, opener: Opener, models: Sequence[str] = (),
    text_field: str = "text", texts: int | None = None, max_length: int = 512, progress: bool = True,
) -> list[RunResult]:  # fmt: skip
    """Measure each model on each of ``text`` into ``output``: curves, heat maps and report of ``run_spectrum``.

    ``opener``: model name -> OpenedModel. ``models``, ``texts``: in place of the scale's. Short texts are passed over,
    so that every map is of ``max_length`` tokens, as in the paper.
    """
    corpora = [Corpus(name, CorpusFiles((name,), text_field)) for name in text]
    settings = SpectrumSettings(max_length=max_length, texts=texts or TEXTS[scale], min_tokens=max_length)
    view = SpectrumView(index=min(INDEX, max_length // 4 if max_length < 512 else INDEX))
    return run_spectrum(
        models or MODELS[scale], corpora, settings, view, output=output, opener=opener, progress=progress
    )
