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

# Tsai et al. 2020, from the authors' code, for CIFAR-10.
INVERTED_ATTENTION: dict[str, Any] = {
    "epochs": 350,
    "batch_size": 128,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "schedule": "step",
    "lr_decay": 0.1,
    "drops": "150/350,250/350",
    "weight_decay": 5e-4,
}

# Phaye et al. 2018, from the authors' code; the number of epochs is our choice.
DCNET: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 100,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "exponential",
    "lr_decay": 0.9,
    "decay_epochs": 1.0,
    "weight_decay": 0.0,
}

# Xiang et al. 2018, from the authors' script; it names no schedule.
MS_CAPSNET: dict[str, Any] = {
    "epochs": 50,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 1e-5,
}

# Our choice, for papers whose recipe we do not know: Nair et al. 2018, HitNet, kernelised capsules,
# FRMS and FREM.
UNKNOWN: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "exponential",
    "lr_decay": 0.95,
    "decay_epochs": 1.0,
    "weight_decay": 0.0,
}

PEER_RECIPES: dict[str, dict[str, Any]] = {
    "capsnet": CAPSNET,
    "capsnet_cifar10": CAPSNET,
    "capsnet_smallnorb": CAPSNET,
    "capsnet_svhn": CAPSNET,
    "inverted_attention": INVERTED_ATTENTION,
    "inverted_attention_resnet": INVERTED_ATTENTION,
    "nair": UNKNOWN,
    # Our choice: that of the network whose routing it replaces.
    "maxmin_capsnet": CAPSNET,
    "hitnet": UNKNOWN,
    "dcnet": DCNET,
    "dcnet3": {**DCNET, "batch_size": 64},
    "ms_capsnet": MS_CAPSNET,
    "ms_capsnet_28": MS_CAPSNET,
    "kernel_capsnet": UNKNOWN,
    "frms_capsnet": UNKNOWN,
    "frem_capsnet": UNKNOWN,
}
