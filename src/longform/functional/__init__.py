"""Pure tensor functions: masks, projections along the sequence, attention. No modules, no configuration."""
