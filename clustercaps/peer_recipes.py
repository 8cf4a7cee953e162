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

# Choi et al. 2019, from the authors' code. Its rate falls to half once epoch 50 is over, so runs of
# 20 epochs never see it fall; a decay of 1e-4 per step, which its optimiser adds, is left out.
AR_CAPSNET: dict[str, Any] = {
    "epochs": 20,
    "batch_size": 100,
    "optimizer": "rmsprop",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": 0.0,
    "augment": False,
}
AR_CAPSNET_CIFAR10: dict[str, Any] = {
    **AR_CAPSNET,
    "epochs": 200,
    "schedule": "step",
    "lr_decay": 0.5,
    "drops": "51/200",
}

# Mazzia et al. 2021, from the authors' code: 0.97 every epoch down to a tenth of the first rate.
EFFICIENT_CAPSNET: dict[str, Any] = {
    "epochs": 150,
    "batch_size": 16,
    "optimizer": "adam",
    "lr": 5e-4,
    "schedule": "exponential",
    "lr_decay": 0.97,
    "decay_epochs": 1.0,
    "lr_floor": 5e-5,
    "weight_decay": 0.0,
}

# Hahn et al. 2019, from the authors' code, for CIFAR-10; 200 epochs for SVHN. When the rate falls
# is our choice.
SELF_ROUTING: dict[str, Any] = {
    "epochs": 350,
    "batch_size": 64,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "schedule": "step",
    "lr_decay": 0.1,
    "drops": "150/350,250/350",
    "weight_decay": 1e-4,
}

# Heinsen 2019, from the author's notebook, without its mixing of pairs of images (mixup). Its rate
# rises and falls in one cycle; our cosine after five epochs of warm-up stands in for it, and no
# weight decay is our choice.
HEINSEN: dict[str, Any] = {
    "epochs": 50,
    "batch_size": 20,
    "optimizer": "radam",
    "lr": 5e-4,
    "schedule": "cosine",
    "warmup_epochs": 5.0,
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
    # Our choice: that of the network whose routing it replaces, slower by ten, since couplings that
    # reach 1 add up; at 1e-3 the lengths of all classes saturate and nothing is learned.
    "maxmin_capsnet": {**CAPSNET, "lr": 1e-4},
    "hitnet": UNKNOWN,
    "dcnet": DCNET,
    "dcnet3": {**DCNET, "batch_size": 64},
    "ms_capsnet": MS_CAPSNET,
    "ms_capsnet_28": MS_CAPSNET,
    "kernel_capsnet": UNKNOWN,
    "frms_capsnet": UNKNOWN,
    "frem_capsnet": UNKNOWN,
    "em_cifar10": EM_CIFAR10,
    "em_mnist": EM_MNIST,
    "em_small": EM,
    "em_smallnorb": EM,
    "star": STAR,
    "star_cifar10": STAR,
    "vb_large": VB,
    "vb_small": VB,
    "vb_smallnorb": VB,
    "ar_capsnet": AR_CAPSNET,
    "ar_capsnet_cifar10": AR_CAPSNET_CIFAR10,
    "efficient_capsnet": EFFICIENT_CAPSNET,
    "efficient_capsnet_smallnorb": EFFICIENT_CAPSNET,
    "heinsen_smallnorb": HEINSEN,
    "self_routing_1": SELF_ROUTING,
    "self_routing_2": SELF_ROUTING,
}
