"""The model card: README.md beside weights, which the Hugging Face Hub shows as their page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from clustercaps.utils.tables import printable

if TYPE_CHECKING:
    from clustercaps.models.base import ImageClassifier

TAGS = ["capsule-network", "clustercaps", "image-classification"]
UNKNOWN = "State here on which data the weights were trained, how long, and how they were tested."
MOST_NAMES = 100


def model_card(
    model: "ImageClassifier",
    facts: Mapping[str, Any] | None = None,
    name: str = "path/to/this/folder",
    licence: str = "mit",
) -> ModelCard:
    """A card with what is known: network, data, recipe, error, classes, and how to load it.

    Args:
        model: The network.
        facts: The `result.json` of its run, with the `command` that reproduces it, the `paper` of
            the network and the `data_licence`; None if it comes from no run.
        name: What to pass to `from_pretrained`.
        licence: Licence of the weights, as the Hub names it.
    """
    facts = dict(facts or {})
    kind = type(model).__name__
    title = f"{facts['model']} on {facts['data']}" if facts else kind
    about = {
        "network": f"{code(facts.get('model', kind))}, a `{kind}` with "
        f"{sum(p.numel() for p in model.parameters()):,} parameters",
        "built with": ", ".join(code(f"{key}={value}") for key, value in model.settings.items()),
        **input_rows(model),
        **(run_rows(facts) if facts else {}),
        "licence": f"{licence} for the weights"
        + (f"; the dataset: {facts['data_licence']}" if facts.get("data_licence") else ""),
    }
    rows = [f"| {key} | {cell(value)} |" for key, value in about.items() if value]
    lines = [f"# {cell(title)}", "", "Weights of the `clustercaps` library for PyTorch.", ""]
    lines += ["| | |", "|---|---|", *rows, "", "```python", "import clustercaps as cc", ""]
    lines += [f'model = cc.from_pretrained("{name}")  # in eval mode', "```", ""]
    if model.preprocessing is not None and model.preprocessing.class_names:
        lines += ["```", f"clustercaps predict {name} photo.png", "```", ""]
    if facts.get("command"):
        lines += ["To reproduce the weights:", "", "```", printable(facts["command"]), "```", ""]
    lines += [f"The network: {facts['paper']}." if facts else UNKNOWN, ""]
    head = card_data(title, licence, facts)
    return ModelCard(f"---\n{head.to_yaml()}\n---\n\n" + "\n".join(lines))


def input_rows(model: "ImageClassifier") -> dict[str, str]:
    """What the network expects of images, and its classes."""
    known = model.preprocessing
    size = "x".join(str(side) for side in model.img_size)
    if known is None:
        return {"input": f"{model.in_chans} colour channels, {size}"}
    how = "each image standardised" if known.standardise else "0 to 1"
    if known.mean is not None and known.std is not None:
        mean, std = (", ".join(f"{x:g}" for x in part) for part in (known.mean, known.std))
        how = f"mean {mean} and standard deviation {std} of pixels from 0 to 1"
    names = known.class_names
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return {
        "input": f"{known.colour}, {size}, {how}",
        "classes": ", ".join(names[:MOST_NAMES]) + more,
    }


def run_rows(facts: Mapping[str, Any]) -> dict[str, str]:
    """How the weights were trained and tested."""
    start = ""
    if facts.get("init_from"):
        new = ", ".join(facts["init_new"]) or "none"
        frozen = "; only the head was trained" if facts.get("frozen") else ""
        start = f"{facts['init_from']} (sha256 {facts['init_sha256'][:12]}), new: {new}{frozen}"
    seconds = f"{facts['train_seconds']:.0f} s of training"
    return {
        "data": f"{facts['data']}, {facts['train_images']:,} training images",
        f"{facts['split']} error": f"**{facts['test_error']:.2f} %** of {facts['test_images']:,} "
        f"images, one seed, weights: {facts['weights']}",
        "recipe": f"`{facts['recipe']}`, {facts['epochs']} epochs, seed {facts['seed']}, {seconds}",
        "started from": start,
        "machine": f"{facts['machine']}, torch {facts['torch']}, clustercaps "
        f"{facts['clustercaps']} at commit {facts['commit']}",
    }


def card_data(title: str, licence: str, facts: Mapping[str, Any]) -> ModelCardData:
    """The header of the card, which the Hub reads."""
    results = None
    if facts:
        tested = EvalResult(
            task_type="image-classification",
            dataset_type=facts["data"],
            dataset_name=facts["data"],
            dataset_split=facts["split"],
            metric_type="accuracy",
            metric_value=round(1 - facts["test_error"] / 100, 6),
        )
        results = [tested]
    return ModelCardData(
        library_name="clustercaps",
        license=licence,
        tags=TAGS,
        pipeline_tag="image-classification",
        model_name=title,
        eval_results=results,
    )


def code(text: Any) -> str:
    """A value in a code span."""
    return f"`{str(text).replace('`', '')}`"


def cell(text: Any) -> str:
    """Text that is safe in a cell of a Markdown table."""
    return printable(str(text)).replace("|", "\\|").replace("<", "&lt;")
