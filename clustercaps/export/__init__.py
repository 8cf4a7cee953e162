"""Trained networks as files for other runtimes: ONNX, `torch.export` and AOTInductor.

`write.export` writes and verifies a file, `reading.open_exported` reads one. What reads ONNX
files does not import torch.
"""
