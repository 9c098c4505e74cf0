"""Small models of several architectures, trained from random weights on the same batches."""
