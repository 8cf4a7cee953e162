"""Write a trained network in another format; a file appears only after it was verified."""

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clustercaps.export.card import FUSED, PLAIN, Card
from clustercaps.export.onnx_file import write_onnx
from clustercaps.export.programs import (
    operators_of,
    trace,
    why_not_fused,
    write_machine_code,
    write_program,
)
from clustercaps.export.reading import open_exported
from clustercaps.export.samples import Samples
from clustercaps.export.verify import Verified, verify
from clustercaps.kernels.build import BuildError, find_compiler
from clustercaps.training.finished import Trained
from clustercaps.utils.errors import unknown
from clustercaps.utils.extras import require
from clustercaps.utils.files import replacing
from clustercaps.utils.paths import output_path

# Format -> suffix of its files, and what writes them.
FORMATS: dict[str, tuple[str, Any]] = {
    "onnx": (".onnx", write_onnx),
    "pt2": (".pt2", write_program),
    "aoti": (".pt2", write_machine_code),
}


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        path: The file.
        card: What it says about its network.
        verified: How it compares with the network.
        note: Why it has plain operators although fused ones were wanted; empty otherwise.
    """

    path: Path
    card: Card
    verified: Verified
    note: str = ""


def check_export(format: str, out: Path) -> None:
    """Refuse what cannot become a file, before any work."""
    if format not in FORMATS:
        raise ValueError(unknown("format", format, FORMATS))
    suffix = FORMATS[format][0]
    if out.suffix.lower() != suffix:
        raise ValueError(f"--out must end in {suffix} for --format {format}; got {out}")
    output_path(out)
    if format == "onnx":
        require("export")
    if format == "aoti":
        try:
            find_compiler()
        except BuildError as error:
            raise OSError(
                f"--format aoti compiles C++ code, but {error}; use --format pt2 or onnx"
            ) from error


def export(
    trained: Trained, format: str, out: Path, samples: Samples, plain: bool = False
) -> Exported:
    """Write a network and compare the file with it; raises an error if they disagree.

    Args:
        trained: The network, on the CPU.
        format: A key of `FORMATS`.
        out: The file to write; one that exists is replaced.
        samples: Images to compare on.
        plain: Whether to use only operators of PyTorch, so that a `.pt2` file can be loaded without
            this package. ONNX files have no others in any case.
    """
    check_export(format, out)
    suffix, write = FORMATS[format]
    model = trained.model.eval()
    wanted = format != "onnx" and not plain
    note = why_not_fused() if wanted else ""
    with quiet():
        # A copy: the file would hold what the images are a view of.
        program = trace(model, samples.images[:2].clone(), fused=wanted and not note)
    card = Card(trained.title, trained.preprocessing)
    card = replace(card, operators=operators_of(program))
    with tempfile.TemporaryDirectory(prefix="clustercaps-export-") as folder:
        unfinished = Path(folder) / f"model{suffix}"
        with quiet():
            write(program, card, unfinished)
        exported = open_exported(unfinished, threads=1)
        verified = verify(model, exported, samples)
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as part:
            shutil.copyfile(unfinished, part)
    return Exported(out, exported.card, verified, note)


def describe(exported: Exported) -> str:
    """What to tell the user about the operators of a file."""
    if exported.card.operators == FUSED:
        return "the fused operator of clustercaps: `import clustercaps.kernels` before loading it"
    assert exported.card.operators == PLAIN
    return "plain operators only: it can be loaded without clustercaps" + (
        f" (no fused operator, because {exported.note})" if exported.note else ""
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without remarks of PyTorch about other packages and its own internals."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
