"""Figures for notebooks: what they show, and what they refuse."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from clustercaps import create_model, figures
from clustercaps.experiments.harness.transformations import names
from clustercaps.models import ImageClassifier

IMAGE = torch.rand(1, 28, 28)


@pytest.fixture(scope="module")
def classifier() -> ImageClassifier:
    return create_model("m1", in_chans=1, img_size=28, dim=3, votes=4).eval()


@pytest.fixture(scope="module")
def drawer() -> ImageClassifier:
    return create_model("affine_capsules", votes=2).eval()


def test_routing_has_a_row_per_image(classifier: ImageClassifier, tmp_path: Path) -> None:
    figure = figures.routing(classifier, torch.rand(2, 1, 28, 28), layer=3)
    # Image, 4 channels, 4 clusters, bars; two colour bars.
    assert len(figure.axes) == 2 * 10 + 2
    assert [ax.get_xlabel() for ax in figure.axes[-2:]] == [
        "capsule length, layer 3",
        "routing weight, layer 3",
    ]
    path = figures.save(figure, tmp_path / "routing.png")
    with Image.open(path) as written:
        assert min(written.size) > 300
    assert (tmp_path / "routing.pdf").read_bytes().startswith(b"%PDF")


def test_routing_states_label_and_prediction(classifier: ImageClassifier) -> None:
    names = [f"class {letter}" for letter in "abcdefghij"]
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        first, second = (names[int(n)] for n in classifier(images).argmax(1))
    figure = figures.routing(classifier, images, labels=[3, 4], class_names=names)
    shown = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert shown == [f"label: class d\npredicted: {first}", f"label: class e\npredicted: {second}"]
    with pytest.raises(ValueError, match="labels must be those of 2 images, got 1"):
        figures.routing(classifier, images, labels=[3])
    with pytest.raises(ValueError, match="class_names must name 10 classes, got 2"):
        figures.routing(classifier, images, class_names=["a", "b"])


def test_votes_are_those_of_the_trace(classifier: ImageClassifier) -> None:
    figure = figures.votes(classifier, IMAGE, layer=2, channel=3, dim=2, position=(1, 5))
    dots, bars = figure.axes
    with torch.no_grad():
        _, traces = classifier.capsules(IMAGE[None], trace=True)
    place = (0, slice(None), 2, 1, 1, 5)
    widths = torch.tensor([bar.get_width() for bar in bars.containers[0]])
    torch.testing.assert_close(widths.float(), traces[1].weights[place])
    drawn = torch.tensor([list(line.get_xdata()) for line in dots.lines[1:5]])
    torch.testing.assert_close(drawn.float(), traces[1].votes[0, :, :, 2, 1, 1, 5])


def test_perturbations_have_a_row_per_dimension() -> None:
    model = create_model("class_capsules", dim=3, votes=2, channels=2).eval()
    figure = figures.perturbations(model, IMAGE, label=4, steps=5)
    assert len(figure.axes) == 3 * 5
    with torch.no_grad():
        features = model.forward_features(IMAGE[None])
        features[0, 4, 2] += 0.25
        expected = model.reconstruct(features, torch.tensor([4]))[0, 0]
    torch.testing.assert_close(torch.as_tensor(figure.axes[-1].images[0].get_array()), expected)


def test_transforms_state_the_squared_error(drawer: ImageClassifier) -> None:
    figure = figures.transforms(drawer, IMAGE, pixels=IMAGE, names=names())
    assert len(figure.axes) == 2 * 19
    with torch.no_grad():
        drawn = drawer.reconstruct(drawer.forward_features(IMAGE[None]))
    error = float((drawn - IMAGE).square().mean())
    assert figure.axes[19].get_xlabel() == f"{error:.4f}"
    assert figures.transforms(drawer, IMAGE).axes[-1].get_xlabel() == ""


def test_networks_without_what_is_shown_are_refused(
    classifier: ImageClassifier, drawer: ImageClassifier
) -> None:
    with pytest.raises(ValueError, match="layer must be 1 to 5, got 6"):
        figures.routing(classifier, IMAGE, layer=6)
    with pytest.raises(ValueError, match="channel must be 1 to 4, got 5"):
        figures.votes(classifier, IMAGE, channel=5)
    with pytest.raises(ValueError, match="column must be 0 to 13, got 14"):
        figures.votes(classifier, IMAGE, position=(0, 14))
    with pytest.raises(ValueError, match="no class capsules with a decoder"):
        figures.perturbations(classifier, IMAGE)
    with pytest.raises(ValueError, match="no decoder of feature maps"):
        figures.transforms(classifier, IMAGE)
    with pytest.raises(ValueError, match="no cluster routing"):
        figures.votes(create_model("affine_cnn"), IMAGE)
    with pytest.raises(ValueError, match="expected images"):
        figures.routing(drawer, torch.rand(3, 28, 28))
