"""The paper's tables and figures, and other architectures beside ours."""
