"""Time and memory of encoders against length: ours, full attention, other linear ones, and the floor."""
