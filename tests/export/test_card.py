"""What an exported file says about its network."""

import pytest

from clustercaps.export.card import Card
from clustercaps.models import Preprocessing

CARD = Card("m1", Preprocessing("grey", 28, ("T-shirt", "Stiefel, groß"), (0.5,), (0.25,)))


def test_what_is_written_is_read_again() -> None:
    texts = CARD.to_texts()
    assert Card.from_texts(texts, "file") == CARD
    assert texts["class_names"] == '["T-shirt", "Stiefel, groß"]'


@pytest.mark.parametrize(
    ("entry", "text", "message"),
    [
        ("class_names", "", "file does not say its class_names; pass a file that"),
        ("class_names", "[]", "expected class names and preprocessing"),
        ("class_names", "[1, 2]", "class_names"),
        ("class_names", "[" * 100_000, "no JSON"),
        ("preprocessing", "not JSON", "its preprocessing is no JSON; export it again"),
        ("preprocessing", "[]", "expected class names and preprocessing"),
        ("preprocessing", '{"colour": "blue", "img_size": 28}', "unknown colour 'blue'"),
        ("preprocessing", '{"colour": "grey", "img_size": -1}', "img_size"),
        ("preprocessing", '{"colour": "grey"}', "img_size"),
    ],
)
def test_a_damaged_entry_is_one_clear_line(entry: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Card.from_texts({**CARD.to_texts(), entry: text}, "file")
    assert "\n" not in str(caught.value)
