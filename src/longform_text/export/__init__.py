"""Exported models: a folder's encoder or classifier as a graph for ONNX Runtime, OpenVINO or torch.export."""
