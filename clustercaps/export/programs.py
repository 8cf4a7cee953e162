"""Networks as programs of `torch.export`, and files with such a program or its machine code."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.export import Dim, ExportedProgram

from clustercaps.export.card import ENTRIES, FUSED, PLAIN, Card
from clustercaps.export.classifier import ExportedClassifier, Images, Logits
from clustercaps.kernels import available
from clustercaps.models import ImageClassifier
from clustercaps.utils.tracing import keeping_operators

# The folder of an AOTInductor package that others do not have.
MACHINE_CODE = "/data/aotinductor/"


@torch.no_grad()
def trace(
    model: ImageClassifier, images: Float[Tensor, "batch channels height width"], fused: bool
) -> ExportedProgram:
    """The network as a program for batches of any size.

    Args:
        model: The network, in eval mode.
        images: At least two images: the size of a batch of one would become a constant.
        fused: Whether the program may contain the fused operators of this package.
    """
    batch = ({0: Dim("batch", min=1)},)
    if fused:
        with keeping_operators():
            program = torch.export.export(model, (images,), dynamic_shapes=batch)
    else:
        program = torch.export.export(model, (images,), dynamic_shapes=batch)
    for node in program.graph.nodes:
        # Paths and source lines of the machine that exports, which mean nothing on others.
        node.meta.pop("stack_trace", None)
    return program


def operators_of(program: ExportedProgram) -> str:
    """Whether a program needs the operators of this package."""
    names = (str(node.target) for node in program.graph.nodes)
    return FUSED if any(name.startswith("clustercaps.") for name in names) else PLAIN


def why_not_fused() -> str:
    """Why the fused operator cannot run on this machine; empty if it can."""
    state = available()["cpu"]
    return "" if state.usable else state.why


def write_program(program: ExportedProgram, card: Card, path: Path) -> None:
    """Write a program as a `.pt2` file."""
    torch.export.save(program, path, extra_files=card.to_texts())


def write_machine_code(program: ExportedProgram, card: Card, path: Path) -> None:
    """Compile a program with AOTInductor into a `.pt2` package."""
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(path),
        inductor_configs={"aot_inductor.metadata": card.to_texts()},
    )


def open_program(path: Path) -> ExportedClassifier:
    """Open either kind of `.pt2` file."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .pt2 file; `clustercaps export` writes such files")
    with zipfile.ZipFile(path) as archive:
        compiled = any(MACHINE_CODE in name for name in archive.namelist())
    texts: dict[str, str] = dict.fromkeys(ENTRIES, "")
    call: Any
    try:
        if compiled:
            call = torch._inductor.aoti_load_package(str(path))
            texts = call.get_metadata()
        else:
            call = torch.export.load(path, extra_files=texts).module()
    # PyTorch raises many types of exceptions for a damaged archive.
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be loaded ({why}); export it again") from error

    @torch.no_grad()
    def run(images: Images) -> Logits:
        logits: Tensor = call(torch.from_numpy(images))
        return logits.numpy()

    return ExportedClassifier(Card.from_texts(texts, str(path)), run)
