"""Definitions of the generated tables. A document has it between ``<!-- table:NAME -->`` and ``<!-- /table -->``."""

from longform_lab.tables.campaign_table import campaign
from longform_lab.tables.classification_tables import CLASSIFICATION_TABLES
from longform_lab.tables.compare_tables import COMPARE_TABLES
from longform_lab.tables.document_tables import DOCUMENT_TABLES
from longform_lab.tables.exported_tables import EXPORTED_TABLES
from longform_lab.tables.long_documents_tables import LONG_DOCUMENTS_TABLES
from longform_lab.tables.long_retrieval_tables import LONG_RETRIEVAL_TABLES
from longform_lab.tables.pooling_tables import POOLING_TABLES
from longform_lab.tables.readme_tables import README_TABLES
from longform_lab.tables.reproduction_tables import REPRODUCTION_TABLES
from longform_lab.tables.spectrum_tables import SPECTRUM_TABLES
from longform_lab.tables.speed_tables import SPEED_TABLES
from longform_lab.tables.table_kinds import Column, ComputedTable, Rows, TableDefinition


def _from_nothing(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row for each attention and k, best first: losses, and how they stand to full attention's of the same seed."""
    seeds = sorted({row["settings"]["seed"] for row in rows})
    losses: dict[tuple[str, int], dict[int, float]] = {}
    for row in rows:
        settings = row["settings"]
        slots = 0 if settings["variant"].startswith("full") else settings["slots"]
        losses.setdefault((settings["variant"], slots), {})[settings["seed"]] = row["metrics"]["loss"]
    full = losses["full", 0]
    cells = []
    for (variant, slots), found in sorted(losses.items(), key=lambda item: min(item[1].values())):
        over = [f"{found[seed] / full[seed]:.3f}" if seed in found else "–" for seed in seeds]
        shown = [f"{found[seed]:.3f}" if seed in found else "–" for seed in seeds]
        name = variant.replace("+conv", ", convolution").replace("@network", ", E at the network's rate")
        cells.append([name, str(slots or "–"), *shown, *over])
    of_seeds = [f"loss, seed {seed}" for seed in seeds], [f"over full attention's, seed {seed}" for seed in seeds]
    return ["keys and values", "k", *of_seeds[0], *of_seeds[1]], cells


TABLES: dict[str, TableDefinition | ComputedTable] = {
    "from_nothing": ComputedTable(
        make=_from_nothing,
        records="from_nothing",
        where={"settings.length": 512},
        row=("settings.variant", "settings.slots", "settings.seed"),
    ),
    "sequence_parallel": TableDefinition(
        columns=(
            Column(header="processes", value="settings.processes", form="d"),
            Column(header="D", value="settings.width", form="d"),
            Column(header="k", value="settings.slots", form="d"),
            Column(header="window (0: none)", value="settings.window", form="d"),
            Column(header="tokens", value="settings.tokens", form=",d"),
            Column(header="memory, bytes", value="metrics.summed", form=",d"),
            Column(header="neighbours, bytes", value="metrics.exchanged", form=",d"),
            Column(header="on the wire", value="metrics.sent", form=",d"),
            Column(header="ring attention", value="metrics.ring_attention", form=",d"),
            Column(header="Ulysses", value="metrics.ulysses", form=",d"),
        ),
        order=("settings.window", "settings.width", "settings.processes", "settings.tokens"),
    ),
    "zero_shot": TableDefinition(
        columns=(
            Column(header="projection", value="settings.projection"),
            Column(header="window", value="settings.window", form="d"),
            Column(header="k", value="settings.projected_length", form="d"),
            Column(header="longest text, tokens", value="settings.max_length", form=",d"),
            Column(header="sinks", value="settings.sinks", form="d"),
            Column(header="articles", value="settings.documents", form="d"),
            Column(header="cosine to the original, 512 tokens", value="metrics.cosine", form=".4f"),
            Column(header="STS-B dev Spearman", value="metrics.sts_spearman", form=".4f"),
            Column(header="of the original's", value="metrics.sts_ratio", form=".1%"),
            Column(
                header="largest difference of a hidden state, STS-B dev", value="metrics.largest_difference", form=".1e"
            ),
        ),
    ),
    "healing": TableDefinition(
        columns=(
            Column(header="longest text, tokens", value="settings.max_length", form=",d"),
            Column(header="training tokens", value="settings.tokens", form=",d"),
            Column(header="CPU minutes", value="metrics.minutes", form=".1f"),
            Column(header="cosine to the original, 512 tokens", value="metrics.cosine", form=".4f"),
            Column(header="STS-B dev Spearman", value="metrics.sts_spearman", form=".4f"),
            Column(header="of the original's", value="metrics.sts_ratio", form=".1%"),
        ),
    ),
    "pure": TableDefinition(
        columns=(
            Column(header="projection", value="settings.projection"),
            Column(header="sharing", value="settings.sharing"),
            Column(header="k at 512", value="settings.projected_length", form="d"),
            Column(header="sinks", value="settings.sinks", form="d"),
            Column(header="rate", value="settings.learning_rate", form="g"),
            Column(header="training tokens", value="settings.tokens", form=",d"),
            Column(header="CPU minutes", value="metrics.minutes", form=".1f"),
            Column(header="cosine to the original", value="metrics.cosine", form=".4f"),
            Column(header="STS-B dev Spearman", value="metrics.sts_spearman", form=".4f"),
            Column(header="of the original's", value="metrics.sts_ratio", form=".1%"),
        ),
    ),
    "heads": TableDefinition(
        columns=(
            Column(header="pooling", value="settings.pooling"),
            Column(header="draws", value="settings.draws", form="d"),
            Column(header="accuracy of the original's head, %", value="metrics.original_accuracy", form=".1f"),
            Column(header="of Longform's", value="metrics.longform_accuracy", form=".1f"),
            Column(header="Longform is better by", value="metrics.accuracy_difference", form="+.1f"),
            Column(header="±", value="metrics.accuracy_difference_sd", form=".1f"),
            Column(header="macro-F1 of the original's head, %", value="metrics.original_macro_f1", form=".1f"),
            Column(header="of Longform's", value="metrics.longform_macro_f1", form=".1f"),
            Column(header="Longform is better by", value="metrics.macro_f1_difference", form="+.1f"),
            Column(header="±", value="metrics.macro_f1_difference_sd", form=".1f"),
        ),
    ),
    "retrieval": TableDefinition(
        columns=(
            Column(header="data", value="settings.data"),
            Column(header="model", value="settings.model"),
            Column(header="long text", value="settings.strategy"),
            Column(header="nDCG@10", value="metrics.ndcg_at_10", form=".1f"),
            Column(header="recall@10", value="metrics.recall_at_10", form=".1f"),
        ),
        order=("settings.data",),
    ),
    "sts": TableDefinition(
        columns=(
            Column(header="model", value="settings.model"),
            Column(header="STS-B dev, Spearman x 100", value="metrics.sts_spearman", form=".1f"),
        ),
    ),
    "memory": TableDefinition(
        columns=(
            Column(header="tokens", value="settings.length", form=",d"),
            Column(header="peak memory of one pass, MiB", value="metrics.peak_mib", form=",.0f"),
            Column(header="KiB a token", value="metrics.kib_per_token", form=".1f"),
            Column(header="largest tensor, elements", value="metrics.largest_tensor", form=",d"),
            Column(header="largest tensor / n²", value="metrics.largest_of_square", form=".3f"),
            Column(header="seconds", value="metrics.seconds", form=".1f"),
        ),
        order=("settings.length",),
    ),
    "own_rates": TableDefinition(
        columns=(
            Column(header="projection", value="settings.projection"),
            Column(header="begins as", value="settings.start"),
            Column(header="its rate over the network's", value="settings.rate"),
            Column(header="accuracy, mean of the seeds", value="metrics.accuracy", form=".3f"),
            Column(header="lowest", value="metrics.lowest", form=".3f"),
            Column(header="highest", value="metrics.highest", form=".3f"),
        ),
        order=("settings.projection", "settings.start", "settings.rate"),
    ),
    "padding": TableDefinition(
        columns=(
            Column(header="texts cut at", value="settings.max_length", form=",d"),
            Column(header="tokens in a batch, at most", value="settings.tokens_per_batch", form=",d"),
            Column(header="texts", value="settings.texts", form=",d"),
            Column(header="tokens", value="metrics.tokens", form=",d"),
            Column(header="batches", value="metrics.batches", form=",d"),
            Column(header="padding, of all computed", value="metrics.padded_share", form=".1%"),
        ),
        order=("settings.max_length",),
    ),
    "campaign": ComputedTable(
        make=campaign,
        records="campaign",
        where={"settings.scale": "full"},
        having=("settings.test",),
        row=("settings.test",),
        order=("settings.part",),
    ),
    **CLASSIFICATION_TABLES,
    **COMPARE_TABLES,
    **EXPORTED_TABLES,
    **DOCUMENT_TABLES,
    **LONG_DOCUMENTS_TABLES,
    **LONG_RETRIEVAL_TABLES,
    **POOLING_TABLES,
    **README_TABLES,
    **REPRODUCTION_TABLES,
    **SPECTRUM_TABLES,
    **SPEED_TABLES,
}
