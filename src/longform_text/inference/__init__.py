"""Models run over texts: loading them, long texts whole, cut or in chunks, output that survives an interruption."""
