"""The Hugging Face contract: configuration, models with heads, registration with the Auto classes."""
