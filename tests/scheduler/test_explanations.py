"""Each parameter is explained, and nothing is that does not exist."""

from __future__ import annotations

from mailcore.scheduler.explanations import EXPLANATIONS, explanation
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, TRANSPORT_SCOPE

NAMES = {*GLOBAL_SCOPE, *TRANSPORT_SCOPE, *DESTINATION_SCOPE}


def test_each_parameter_is_explained_and_nothing_else() -> None:
    assert set(EXPLANATIONS) == NAMES


def test_an_explanation_is_one_or_two_paragraphs_that_flow() -> None:
    for name in NAMES:
        paragraphs = explanation(name).split("\n\n")
        assert 1 <= len(paragraphs) <= 2, name
        for paragraph in paragraphs:
            assert 60 <= len(paragraph) <= 900, (name, len(paragraph))
            assert paragraph == " ".join(paragraph.split())
            assert paragraph.endswith((".", "?"))


def test_a_parameter_named_in_an_explanation_exists() -> None:
    for name in NAMES:
        for word in explanation(name).replace("/", " ").split():
            if "_" in word:
                plain = word.strip("().,;:")
                assert plain in NAMES or plain == "sqrt_concurrency", f"{name}: {plain}"
