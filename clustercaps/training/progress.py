"""How far a run is."""

from dataclasses import dataclass


@dataclass
class Progress:
    """The progress of a run."""

    # Finished epochs, steps in the current epoch, steps in total.
    epoch: int = 0
    step: int = 0
    steps: int = 0
    # Sums over this process's images in the current epoch.
    loss: float = 0.0
    errors: int = 0
    seen: int = 0
    # Time spent on training steps.
    seconds: float = 0.0
