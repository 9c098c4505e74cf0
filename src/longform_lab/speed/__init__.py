"""The benchmark: time and memory of encoders against length, ours, full attention and others, and the floor."""
