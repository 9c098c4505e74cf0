"""The main job on an embedded data set: convert, heal, fine-tune, compare, report."""
