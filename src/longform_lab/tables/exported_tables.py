"""Tables of docs/guides/export.md: exported graphs beside the model."""

from longform_lab.tables.table_kinds import Column, TableDefinition

ONE_MACHINE = {"hardware.cpu_features": lambda features: "avx512" in features}  # records of others do not compare

EXPORTED_TABLES: dict[str, TableDefinition] = {
    "exported": TableDefinition(
        columns=(
            Column(header="tokens", value="settings.tokens", form=",d"),
            Column(header="backend", value="settings.backend"),
            Column(header="processor time, of torch's", value="metrics.of_torch", form=".2f"),
            Column(header="largest difference of a hidden state", value="metrics.difference", form=".1e"),
        ),
        where=ONE_MACHINE,
        row=("settings.model", "settings.backend", "settings.tokens"),
        order=("settings.tokens",),
    ),
    "exported_quality": TableDefinition(
        columns=(
            Column(header="backend", value="settings.backend"),
            Column(header="file, MiB", value="metrics.mib", form=".1f"),
            Column(header="mean cosine to torch", value="metrics.cosine", form=".4f"),
            Column(header="lowest", value="metrics.lowest_cosine", form=".4f"),
            Column(header="STS-B dev Spearman", value="metrics.sts_spearman", form=".4f"),
        ),
        where=ONE_MACHINE,
        row=("settings.model", "settings.backend", "settings.pairs"),
    ),
}
