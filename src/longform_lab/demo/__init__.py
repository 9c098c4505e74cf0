"""The demo on bundled texts: passages find the long speeches that they were taken from."""
