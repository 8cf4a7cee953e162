"""The training loop, on Hugging Face Accelerate: the same on one process or many."""

import contextlib
import math
import signal
import sys
import time
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from clustercaps.data import is_own
from clustercaps.training.batches import Batch, Load, Share, TrainBatches
from clustercaps.training.card import card_facts
from clustercaps.training.diagnose import first_not_finite
from clustercaps.training.identity import Identity
from clustercaps.training.initial import describe_start, new_network, set_training, start_together
from clustercaps.training.preprocessing import preprocessing_of
from clustercaps.training.processes import exchange_device, in_all, in_first, same_in_all
from clustercaps.training.reporting import describe, high_loss, run_bar, say, standing
from clustercaps.training.result import result_of, stale_epochs
from clustercaps.training.run_data import RunData
from clustercaps.training.run_folder import RunFolder
from clustercaps.training.schedule import set_rates
from clustercaps.training.scoring import Score, score
from clustercaps.training.settings import TrainSettings
from clustercaps.training.signals import Stopped, StopSignals
from clustercaps.training.state import TrainState

# Possible outcomes of a step; the processes agree on the largest.
GO_ON, SAVE, STOP, NOT_FINITE = range(4)


class Trainer:
    """One run.

    Args:
        settings: Settings of the run.
        folder: Run folder, already opened by the main process.
        accelerator: From `new_accelerator`.
        data_dir: Folder with the official files of the dataset, if not the cache.
        save_every: Seconds between checkpoints within an epoch.
        workers: Data loading processes for streamed images.
        load: Reads a dataset into memory; `data.load` by default.
        resume: Whether `restore` follows: its weights are then those of the checkpoint.
    """

    def __init__(
        self,
        settings: TrainSettings,
        folder: RunFolder,
        accelerator: Accelerator,
        data_dir: str | None = None,
        save_every: float = 120.0,
        workers: int = 2,
        load: Load | None = None,
        resume: bool = False,
    ) -> None:
        self.settings, self.folder, self.accelerator = settings, folder, accelerator
        self.save_every, self.workers, self.device = save_every, workers, accelerator.device
        self.share = Share(accelerator.process_index, accelerator.num_processes)
        self.data_dir, self.load = data_dir, load
        # The main process downloads missing data; the others find it in the cache.
        in_first(accelerator, self._open_data)
        in_all(accelerator, lambda: None if accelerator.is_main_process else self._open_data())
        train_images, self.prepare = self.data.train, self.data.prepare
        identity = Identity.of(settings, train_images, self.data.tests["test"])
        same_in_all(accelerator, identity.to_plain(), "settings or data")
        self.batches = TrainBatches(
            train_images, self.data.augment, settings, self.share, self.device, workers
        )
        set_seed(settings.seed)
        model = new_network(settings, train_images)
        restored = resume and in_first(accelerator, folder.checkpoint.exists)
        start = (
            None
            if restored
            else start_together(accelerator, model, settings, self.data.class_names)
        )
        self.state = TrainState(
            model, identity, accelerator, self.prepare, len(train_images), start
        )

    def _open_data(self) -> None:
        self.data = RunData(self.settings, self.data_dir, self.load)

    def restore(self) -> None:
        """Continue from the checkpoint in the run folder, if the run has one."""
        path, folder = self.folder.checkpoint, self.folder
        metrics = in_first(self.accelerator, folder.metrics)
        if in_first(self.accelerator, path.exists):
            in_all(self.accelerator, lambda: self.state.restore(path, len(self.batches), metrics))
        elif metrics:
            raise ValueError(
                f"{path} is missing, but {folder.path} has the metrics of {len(metrics)} epochs; "
                "restore the file from a backup, or start over with --overwrite"
            )

    def run(self) -> dict[str, Any]:
        """Train to the end and return the result; raises `Stopped` after a signal."""
        state, settings = self.state, self.settings
        if self.accelerator.is_main_process:
            self.folder.keep_metrics(state.progress.epoch, state.last_epoch)
            if is_own(settings.data):
                say(self.data.describe(), sys.stderr)
        if state.start is not None and not state.progress.steps:
            if self.accelerator.is_main_process:
                say(describe_start(state.start, state.model))
            # From here on, the trained network is not needed again.
            state.save(self.folder.checkpoint)
        tested = None
        with StopSignals() as signals:
            while state.progress.epoch < settings.epochs and not self._stops_early():
                self._train_epoch(signals)
                tested = self._end_epoch()
        # A run killed after its last checkpoint but before its result is tested again.
        return self._finish(tested or self._test())

    def _stops_early(self) -> bool:
        patience = self.settings.early_stop
        if not patience:
            return False
        # Computed from the metrics, so that a resumed run stops at the same epoch.
        return in_first(self.accelerator, lambda: stale_epochs(self.folder.metrics())) >= patience

    def _train_epoch(self, signals: StopSignals) -> None:
        """Run the remaining steps of the current epoch."""
        progress = self.state.progress
        set_training(self.state.parallel)
        saved = then = time.monotonic()
        shown = self.accelerator.is_main_process
        with run_bar(self.settings, progress, len(self.batches), shown) as bar:
            for parts in self.batches.epoch(progress.epoch, progress.step):
                through = progress.step / len(self.batches)
                rate = set_rates(
                    self.state.optimizer, self.settings, progress.epoch, through, progress.steps
                )
                finite = self._step(parts)
                now = time.monotonic()
                progress.seconds += now - then
                then = now
                wish = SAVE if now - saved >= self.save_every else GO_ON
                wish = STOP if signals.received else wish
                outcome = self._agree(wish if finite else NOT_FINITE)
                if outcome == NOT_FINITE:
                    raise ValueError(self._not_finite(parts, rate))
                if outcome >= SAVE:
                    self._refuse_not_finite()
                    self.state.save(self.folder.checkpoint)
                    saved = then = time.monotonic()
                if outcome == STOP:
                    # The signal may have reached only another process.
                    number = signals.number or signal.SIGTERM
                    raise Stopped(
                        number, self.folder.path, progress.epoch, progress.step, self.data_dir
                    )
                bar.set_postfix_str(standing(self.settings, progress), refresh=False)
                bar.update()

    def _step(self, parts: list[Batch]) -> bool:
        """Update the weights with one global batch; False if loss or gradient is not finite."""
        progress, settings = self.state.progress, self.settings
        parallel = self.state.parallel
        self.state.optimizer.zero_grad()
        losses = []
        errors = torch.zeros((), dtype=torch.int64, device=self.device)
        for number, batch in enumerate(parts, 1):
            # Gradients are synchronised once per step, with the last part.
            last = number == len(parts)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(parallel):
                with self._precision():
                    loss, logits = parallel(batch.images, batch.labels, progress.steps)
                # DDP averages gradients over processes; multiplied by their number, this gives the
                # mean over the whole batch, even if it is split unevenly.
                self.accelerator.backward(loss * (self.share.world / batch.total))
            losses.append(loss.detach())
            errors += (logits.argmax(1) != batch.labels).sum()
        norm = nn.utils.clip_grad_norm_(parallel.parameters(), settings.clip_norm or math.inf)
        # Added up as float64, which not every device has; not with sum(), which rounds differently
        # in newer versions of Python.
        loss_sum = 0.0
        for part in torch.stack(losses).tolist():
            loss_sum += part
        if not (norm.isfinite() and math.isfinite(loss_sum)):
            return False
        self.state.optimizer.step()
        progress.step += 1
        progress.steps += 1
        progress.loss += loss_sum
        progress.errors += int(errors)
        progress.seen += sum(len(batch.labels) for batch in parts)
        if self.state.average is not None:
            self.state.average.update(self.state.model, progress.steps)
        return True

    def _precision(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"
        )

    def _agree(self, wish: int) -> int:
        """The largest request of all processes, so that they save and stop together."""
        if self.share.world == 1:
            return wish
        return int(self.accelerator.gather(torch.tensor([wish], device=self.device)).max())

    def _end_epoch(self) -> dict[str, Score] | None:
        """Test, write the metrics of the epoch and a checkpoint."""
        self._refuse_not_finite()
        progress = self.state.progress
        own = [progress.loss, progress.errors, progress.seen]
        device = exchange_device(self.accelerator)
        sums = torch.tensor(own, dtype=torch.float64, device=device)
        loss, errors, seen = self.accelerator.reduce(sums, "sum").tolist()
        progress.epoch += 1
        progress.step, progress.loss, progress.errors, progress.seen = 0, 0.0, 0, 0
        line: dict[str, Any] = {
            "epoch": progress.epoch,
            "train_loss": loss / seen,
            "train_error": 100 * errors / seen,
            "seconds": round(progress.seconds, 2),
        }
        last = progress.epoch == self.settings.epochs
        tested = self._test() if last or progress.epoch % self.settings.test_every == 0 else None
        for part, found in (tested or {}).items():
            line |= {f"{part}_loss": found.loss, f"{part}_error": found.error}
        # The checkpoint comes first and has a copy of the line: a kill after it loses nothing.
        self.state.last_epoch = line
        self.state.save(self.folder.checkpoint)
        if self.accelerator.is_main_process:
            self.folder.add_metrics(line)
            say(describe(line, self.settings))
            note = high_loss(line, self.state.model, len(self.batches), self.settings)
            if note:
                say(f"clustercaps: note: {note}", sys.stderr)
        self.accelerator.log({k: v for k, v in line.items() if k != "epoch"}, progress.epoch)
        return tested

    def _refuse_not_finite(self) -> None:
        """Raise an error if the state is not finite, so that no such checkpoint is written."""
        bad, progress = self.state.not_finite(), self.state.progress
        if self._agree(GO_ON if bad is None else NOT_FINITE) == NOT_FINITE:
            when = f"in epoch {progress.epoch + 1}, after step {progress.step}"
            raise ValueError(
                f"{bad or 'a weight in another process'} is not finite {when}; {self._advice()}"
            )

    def _advice(self) -> str:
        there = self.folder.checkpoint.exists()
        kept = f"{self.folder.path} has the last good checkpoint" if there else "nothing is kept"
        return f"{kept}; try a smaller --lr or --clip-norm, or another --seed"

    def _test(self) -> dict[str, Score]:
        """Scores on the test images and, with `views`, on novel viewpoints."""
        model, scores = self.state.tested, {}
        for part, images in self.data.tests.items():
            with self._precision():
                own = score(
                    model,
                    images,
                    self.prepare,
                    model.num_classes,
                    self.device,
                    self.share,
                    self.workers,
                )
            scores[part] = own.over_all_processes(self.accelerator)
            if not math.isfinite(scores[part].loss):
                raise ValueError(
                    f"the {part} loss is not finite after epoch {self.state.progress.epoch}; "
                    f"{self._advice()}"
                )
        return scores

    def _finish(self, scores: dict[str, Score]) -> dict[str, Any]:
        """Save the network and write the result of the last epoch."""
        names, images = self.data.class_names, len(self.data.train)
        result = result_of(self.settings, self.state, scores, names, images, self.share.world)
        if self.accelerator.is_main_process:
            side, tested = self.settings.side, self.state.tested
            tested.preprocessing = preprocessing_of(self.settings.data, side, names, self.prepare)
            card = {"facts": card_facts(self.settings, result)}
            tested.save_pretrained(self.folder.model, model_card_kwargs=card)
            self.folder.keep_last_test(names, {p: s.to_plain() for p, s in scores.items()})
            self.folder.finish(result)
        self.accelerator.wait_for_everyone()
        return result

    def _not_finite(self, parts: list[Batch], rate: float) -> str:
        progress = self.state.progress
        place = first_not_finite(self.state.model, [batch.images for batch in parts])
        return (
            f"loss or gradient is not finite in epoch {progress.epoch + 1}, step "
            f"{progress.step + 1}, at learning rate {rate:.4g}; first seen in {place}; "
            f"{self._advice()}"
        )
