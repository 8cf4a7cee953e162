import re
from pathlib import Path

import pytest
import torch
from helpers.pages import PAGES, examples, run_examples

from clustercaps.routing import ROUTINGS

# Their examples need files, folders or an account of the reader.
NOT_RUN = {"export", "own-data", "sharing-weights"}
WITH_EXAMPLES = [
    page for page in PAGES if page.stem not in NOT_RUN and next(examples(page.read_text()), None)
]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    registered = dict(ROUTINGS)
    try:
        for stated, printed in run_examples(page.read_text()):
            assert printed == stated
    finally:
        ROUTINGS.clear()
        ROUTINGS.update(registered)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_stated_output_belongs_to_an_example(page: Path) -> None:
    text = page.read_text()
    stated = [prints for _, prints in examples(text) if prints is not None]
    assert len(stated) == len(re.findall(r'^```text title="prints"', text, re.M))


def test_a_wrong_output_is_found() -> None:
    page = '```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text title="prints"\n3\n```\n'
    assert run_examples(page) == [("3\n", "2\n")]
