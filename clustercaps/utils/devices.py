"""Devices by name."""

import torch


def pick_device(name: str = "auto") -> torch.device:
    """A device that can be used here.

    Args:
        name: "auto" for the accelerator if there is one, else the CPU; or a device as torch names
            it, such as "cpu", "cuda", "cuda:1" or "mps".
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(name)
        # The exception for a missing device depends on its type.
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:
        known = "cpu" if accelerator is None else f"cpu, {accelerator.type}"
        raise ValueError(
            f"device {name!r} is not available; this machine and this build of torch have: "
            f"{known} (or auto)"
        ) from error
    return device


def accelerator_name(device: torch.device) -> str:
    """The name of an accelerator, with the version of its toolkit; "none" for the CPU."""
    if device.type == "cpu":
        return "none"
    name_of = getattr(torch.get_device_module(device), "get_device_name", None)
    name = device.type if name_of is None else name_of(device)
    toolkits = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
    versions = [f"{toolkit} {version}" for toolkit, version in toolkits.items() if version]
    return ", ".join([name, *(versions if device.type == "cuda" else [])])
