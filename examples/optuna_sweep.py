"""Search for settings of a capsule network with Optuna.

    pip install 'clustercaps[examples]'
    python examples/optuna_sweep.py

samples the votes K, the capsule dimension D and the learning rate, trains each choice on a part of
the images that come with the package, and prints the settings with the lowest error. The error is
that on a fifth of the training images that is held out (`validate`): the test set must not choose
settings. With --small it tries two small networks.
"""

import argparse
import tempfile

import optuna

import clustercaps as cc


def main() -> None:
    """Run the search."""
    parser = argparse.ArgumentParser(description="Search for settings with Optuna.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    small = parser.parse_args().small
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def error_of(trial: optuna.Trial) -> float:
        network = {
            "channels": 2 if small else 4,
            "votes": trial.suggest_int("votes", 2, 3 if small else 8),
            "dim": trial.suggest_int("dim", 3, 4 if small else 12),
        }
        settings = cc.training.resolve(
            "m1",
            "fashion-mnist-mini",
            "fast",
            epochs=1 if small else 4,
            limit=200 if small else 2000,
            test_limit=100 if small else 1000,
            lr=trial.suggest_float("lr", 0.005, 0.2, log=True),
            validate=True,
            model_settings=network,
        )
        with tempfile.TemporaryDirectory() as folder:
            result = cc.training.train(settings, folder)
        chosen = ", ".join(f"{name} {value:.4g}" for name, value in trial.params.items())
        print(f"trial {trial.number + 1}: {chosen}: error {result['test_error']:.1f} %")
        return float(result["test_error"])

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(error_of, n_trials=2 if small else 20)
    print(f"best of {len(study.trials)}: {study.best_params}, error {study.best_value:.1f} %")


if __name__ == "__main__":
    main()
