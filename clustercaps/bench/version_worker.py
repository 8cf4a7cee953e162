"""One version of the package, measured in a process of its own on request.

`versions` runs the text of this file with `python -c`, in a checkout of some commit: of the package
it may use only what that commit has too, which is `clustercaps.bench.cases`. Requests come on
standard input as JSON, one per line, and so do the answers.
"""

import json
import os
import statistics
import sys
import time
from typing import Any

import torch
from torch import Tensor

from clustercaps.bench.cases import Case, Workload, build

# Enough for a batch norm; in float64.
CHECKED_IMAGES = 2


def timed(work: Workload, request: dict[str, Any]) -> dict[str, Any]:
    """Call what is asked for until its time is over."""
    calls = {
        "training step": work.training_step,
        "inference": work.forward,
        "one image": work.one_image().forward,
    }
    call = calls[request["measure"]]
    work.module.train(request["measure"] == "training step")
    if request["warm_up"]:
        call()
    wall: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + request["seconds"]
    while not wall or time.perf_counter() < end:
        before = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


def checked_work(case: dict[str, Any]) -> Workload:
    """The same network on a few images, in float64."""
    few = build(Case(**{**case, "batch": CHECKED_IMAGES}), "auto")
    return Workload(few.module.double().train(), few.x.detach().double(), few.target)


def outcome(work: Workload) -> tuple[Tensor, Tensor]:
    """Output and all gradients as flat vectors."""
    torch.manual_seed(0)
    output = work.module(work.x)
    torch.manual_seed(0)
    work.training_step()
    gradients = [p.grad.flatten() for p in work.module.parameters() if p.grad is not None]
    return output.detach().flatten(), torch.cat(gradients)


def save(case: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Write weights of this version, and what it computes with them, to a file."""
    work = checked_work(case)
    weights = {name: value.clone() for name, value in work.module.state_dict().items()}
    output, gradient = outcome(work)
    torch.save({"weights": weights, "output": output, "gradient": gradient}, request["path"])
    return {}


def compare(case: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Relative distance of output and gradients from those of another version's file."""
    theirs = torch.load(request["path"], weights_only=True)
    work = checked_work(case)
    shapes = {name: value.shape for name, value in work.module.state_dict().items()}
    if shapes != {name: value.shape for name, value in theirs["weights"].items()}:
        return {"output": None, "gradient": None}
    work.module.load_state_dict(theirs["weights"])
    ours = dict(zip(("output", "gradient"), outcome(work), strict=True))
    return {
        name: ((value - theirs[name]).norm() / theirs[name].norm().clamp_min(1e-300)).item()
        for name, value in ours.items()
    }


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print is no answer.
    os.dup2(2, 1)
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    work = build(Case(**task["case"]), "auto")
    for line in sys.stdin:
        request = json.loads(line)
        if request["measure"] == "save":
            answer = save(task["case"], request)
        elif request["measure"] == "compare":
            answer = compare(task["case"], request)
        else:
            answer = timed(work, request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
