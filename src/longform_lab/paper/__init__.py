"""The paper's tables and figures, measured here."""
