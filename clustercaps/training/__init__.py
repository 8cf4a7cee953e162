"""Training: settings and recipes, the loop, checkpoints, run folders, scores."""

from clustercaps.recipes import RECIPES, TrainSettings, resolve
from clustercaps.training.runs import train, train_seeds
from clustercaps.training.score import Score, score

__all__ = ["RECIPES", "Score", "TrainSettings", "resolve", "score", "train", "train_seeds"]
