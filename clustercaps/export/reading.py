"""Open what `clustercaps export` wrote; ONNX files need onnxruntime, and no torch."""

from pathlib import Path

import numpy as np

from clustercaps.export.card import INPUT, OUTPUT, Card
from clustercaps.export.classifier import ExportedClassifier, Images, Logits
from clustercaps.utils.paths import check_input

SUFFIXES = (".onnx", ".pt2")


def is_exported(name: str) -> bool:
    """Whether a name is that of an exported file, by its suffix."""
    return Path(name).suffix.lower() in SUFFIXES


def open_exported(path: Path, threads: int = 0) -> ExportedClassifier:
    """Open a file that `clustercaps export` wrote.

    Args:
        path: The file; `.pt2` files contain code and are for those who trust their origin.
        threads: Threads of onnxruntime; 0 for one per core.
    """
    check_input(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; `clustercaps export` writes such files")
    if path.suffix.lower() == ".onnx":
        return _open_onnx(path, threads)
    from clustercaps.export.programs import open_program

    return open_program(path)


def _open_onnx(path: Path, threads: int) -> ExportedClassifier:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "the package onnxruntime is needed to run ONNX files: pip install 'clustercaps[export]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work must not slow down others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Warnings about single nodes mean nothing to a user.
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    # Its exceptions have no common base.
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} is not a readable ONNX file ({why}); export it again") from error
    card = Card.from_texts(session.get_modelmeta().custom_metadata_map, str(path))

    def run(images: Images) -> Logits:
        (logits,) = session.run([OUTPUT], {INPUT: images})
        return np.asarray(logits)

    return ExportedClassifier(card, run)
