"""Tables and pictures of README.md and docs/, made from benchmarks/records."""
