"""The Hugging Face contract: configuration, models with heads. Auto classes know them by ``longform.auto_tables``."""
