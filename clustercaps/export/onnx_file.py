"""A network as one ONNX file, with standard operators only."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from clustercaps.export.card import INPUT, OUTPUT, Card

MISSING_OPERATOR = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")


def write_onnx(program: ExportedProgram, card: Card, path: Path) -> None:
    """Write a program as ONNX, with all weights in the file."""
    # ONNX has no digamma function; VB routing has one.
    program = program.run_decompositions({torch.ops.aten.digamma.default: positive_digamma})
    try:
        written: Any = torch.onnx.export(
            program, dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
    except torch.onnx.errors.OnnxExporterError as error:
        missing = missing_operator(error)
        if missing is None:
            raise
        raise ValueError(
            f"ONNX has no operator for {missing}, which {card.model} needs; use --format pt2"
        ) from error
    model = written.model
    remove_traces(model)
    model.metadata_props.update(card.to_texts())
    written.save(path, external_data=False)


def positive_digamma(x: Tensor) -> Tensor:
    """The digamma function of positive numbers, from its recurrence and its asymptotic series."""
    below = torch.zeros_like(x)
    for step in range(6):
        below = below + 1 / (x + step)
    x = x + 6
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square / 252))
    return x.log() - 0.5 / x - series - below


def missing_operator(error: BaseException | None) -> str | None:
    """The operator that the exporter could not translate, from the chain of its errors."""
    while error is not None:
        found = MISSING_OPERATOR.search(str(error))
        if found:
            return found[1]
        error = error.__cause__
    return None


def remove_traces(model: Any) -> None:
    """Delete source lines, and paths of the machine that exports, from every node."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
    for function in model.functions.values():
        for node in function.all_nodes():
            node.metadata_props.clear()
