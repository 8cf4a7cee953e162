"""How the other papers trained their networks: optimiser, loss weights and schedule.

Image preparation is the library's own for every network (docs/data.md), so that networks are
compared on the same images. Imports nothing heavy.
"""

from typing import Any

# Sabour et al. 2017, from the authors' code: 0.96 every 2,000 steps of 128 images is every 4.27
# epochs of MNIST; 300,000 steps are 640 epochs.
CAPSNET: dict[str, Any] = {
    "epochs": 640,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "exponential",
    "lr_decay": 0.96,
    "decay_epochs": 4.27,
    "lr_floor": 1e-6,
    "weight_decay": 0.0,
}

# Hinton et al. 2018. Batches, decay of 0.96 every 20,000 steps, weight penalty and 2,000,000 steps
# from the authors' code; the learning rate from what an author answered (the code has 0.01). Steps
# are counted in epochs of smallNORB, 24,300 images.
EM: dict[str, Any] = {
    "epochs": 5264,
    "batch_size": 64,
    "optimizer": "adam",
    "lr": 3e-3,
    "schedule": "exponential",
    "lr_decay": 0.96,
    "decay_epochs": 52.6,
    "weight_decay": 2e-7,
}
# The same steps in epochs of 50,000 and of 60,000 images.
EM_CIFAR10: dict[str, Any] = {**EM, "epochs": 2558, "decay_epochs": 25.6}
EM_MNIST: dict[str, Any] = {**EM, "epochs": 2132, "decay_epochs": 21.3}

# Ribeiro et al. 2020, from the authors' code, which has no schedule.
VB: dict[str, Any] = {
    "epochs": 300,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 0.0,
}

# Ahmed and Torresani 2019: the recipe is not public. All of this is our choice.
STAR: dict[str, Any] = {
    "epochs": 300,
    "batch_size": 64,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "cosine",
    "weight_decay": 0.0,
}

PEER_RECIPES: dict[str, dict[str, Any]] = {
    "capsnet": CAPSNET,
    "capsnet_cifar10": CAPSNET,
    "capsnet_smallnorb": CAPSNET,
    "capsnet_svhn": CAPSNET,
    "em_cifar10": EM_CIFAR10,
    "em_mnist": EM_MNIST,
    "em_small": EM,
    "em_smallnorb": EM,
    "star": STAR,
    "star_cifar10": STAR,
    "vb_large": VB,
    "vb_small": VB,
    "vb_smallnorb": VB,
}
