import importlib
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import clustercaps as cc

TINY = {"channels": 2, "votes": 3, "dim": 4}


def classifier(**params):
    given = {"model_settings": TINY, "epochs": 2, "random_state": 0, "device": "cpu"}
    return cc.sklearn.CapsuleClassifier(**{**given, **params})


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=3, return_X_y=True)
    return X[:120], y[:120]


# Not of the package itself: the tests check the annotated types of all arguments.
TYPES = {"check_do_not_raise_errors_in_init_or_set_params": "only the tests check types"}


def test_scikit_learn_accepts_the_estimator() -> None:
    with warnings.catch_warnings():
        # Most of its checks have rows that are not square images.
        warnings.filterwarnings("ignore", "rows of .* numbers are not square")
        estimator = classifier(epochs=4, batch_size=32)
        found = check_estimator(estimator, on_skip=None, expected_failed_checks=TYPES)
    assert len(found) > 40
    others = {each["check_name"] for each in found if each["status"] == "skipped"}
    # These need pandas, and an environment variable that is read when scipy is imported.
    assert others <= {"check_array_api_input", "check_classifier_data_not_an_array"}


def test_learns_digits_with_string_labels(digits) -> None:
    X, y = digits
    names = np.array(["zero", "one", "two"])[y]
    model = classifier(epochs=6, batch_size=16).fit(X[:90], names[:90])
    assert model.classes_.tolist() == ["one", "two", "zero"]
    assert model.n_features_in_ == 64
    assert model.image_shape_ == (8, 8, 1)
    assert model.score(X[90:], names[90:]) > 0.8
    assert len(model.loss_curve_) == 6
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert np.allclose(model.predict_proba(X).sum(1), 1)


def test_shapes_of_images_do_not_matter(digits) -> None:
    X, y = digits
    flat = classifier().fit(X, y).predict_proba(X)
    square = X.reshape(-1, 8, 8)
    for images in (square, square[..., None], square.tolist(), torch.tensor(square)):
        assert np.array_equal(classifier().fit(images, y).predict_proba(X), flat)
    again = classifier(image_shape=(8, 8)).fit(X.astype(np.uint8), y)
    assert np.array_equal(again.predict_proba(square), flat)
    colour = classifier(image_shape=(8, 4, 2)).fit(X, y)
    assert colour.model_.in_chans == 2
    assert colour.model_.img_size == (8, 4)
    # Any unit, because images are scaled by their range.
    assert np.allclose(classifier().fit(X / 16, y).predict_proba(X / 16), flat, atol=1e-4)


def test_random_state_decides_everything(digits) -> None:
    X, y = digits
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, same, other = (classifier(random_state=seed).fit(X, y) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected), "the caller's random numbers changed"
    assert np.array_equal(first.predict_proba(X), same.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_clones_and_pickles(digits) -> None:
    X, y = digits
    model = classifier(recipe="fast").fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    # The network itself goes the way of the library, without pickle.
    assert loaded.model_.img_size == (8, 8)


def test_pipelines_and_searches(digits) -> None:
    X, y = digits
    pipeline = make_pipeline(MinMaxScaler(), classifier(epochs=1))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    grid = {"capsuleclassifier__model_settings": [TINY, {**TINY, "routing": "uniform"}]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    assert search.predict(X).shape == y.shape


BAD = {
    "unknown model 'm9'": ({"model": "m9"}, KeyError),
    "unknown setting 'augment'": ({"settings": {"augment": True}}, ValueError),
    "epochs must be an integer of at least 1, got 0": ({"epochs": 0}, ValueError),
    r"image_shape is \(7, 9\), but images have 64 numbers": ({"image_shape": (7, 9)}, ValueError),
    "not finite in epoch 1.*first seen in.*use a smaller lr": (
        {"lr": 1e30, "batch_size": 16, "settings": {"warmup_epochs": 0.0}},
        ValueError,
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters_get_one_line(digits, message: str) -> None:
    params, error = BAD[message]
    with pytest.raises(error, match=message) as caught:
        classifier(**params).fit(*digits)
    assert "\n" not in str(caught.value)


def test_bad_images_get_scikit_learns_messages(digits) -> None:
    X, y = digits
    broken = X.copy()
    broken[3, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        classifier().fit(broken, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier().fit(X, y[:-1])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(X, y + 0.5)
    with pytest.raises(ValueError, match="at least 2 classes, but y has only one class: 0"):
        classifier().fit(X, np.zeros_like(y))
    model = classifier(epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="X has 63 features, but CapsuleClassifier is expecting"):
        model.predict(X[:, 1:])
    with pytest.raises(ValueError, match=r"but images have the shape \(4, 16, 1\)"):
        model.predict(X.reshape(-1, 4, 16))


def test_rows_that_are_no_square_get_a_warning(digits) -> None:
    X, y = digits
    with pytest.warns(UserWarning, match=r"image_shape=\(1, 60\)"):
        model = classifier(epochs=1).fit(X[:, :60], y)
    assert model.image_shape_ == (1, 60, 1)


def test_missing_scikit_learn_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "clustercaps.sklearn")
    with pytest.raises(
        ImportError, match=r"needs scikit-learn .* install 'clustercaps\[sklearn\]'"
    ):
        importlib.import_module("clustercaps.sklearn")
