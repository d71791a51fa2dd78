"""Answers of other servers: right ones, and those that no vector or ranking can be made of."""

import pytest

from core.errors import EngineError
from web.openai.text.results import read_ranking, read_vectors


def test_vectors_come_in_the_order_of_their_inputs() -> None:
    answer = (
        '{"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}],'
        ' "usage": {"prompt_tokens": 7, "total_tokens": 8}}'
    )
    found = read_vectors("far", answer, 2)
    assert [row.tolist() for row in found.rows] == [[1, 2], [3, 4]]
    assert (found.model, found.tokens) == ("far", 7)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        '{"data": [{"embedding": [1]}]}',
        '{"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}',
        '{"data": [{"embedding": []}, {"embedding": []}]}',
        '{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [2]}]}',
        '{"data": [{"index": 1, "embedding": [1]}, {"index": 2, "embedding": [2]}]}',
        '{"data": [{"embedding": [1]}, {"embedding": [1e300]}]}',
        '{"data": [{"embedding": "AACAPw=="}, {"embedding": "AACAPw=="}]}',
    ],
)
def test_an_answer_without_two_vectors_is_an_error_of_that_server(answer: str) -> None:
    with pytest.raises(EngineError, match="far"):
        read_vectors("far", answer, 2)


def test_a_ranking_has_a_score_for_each_document() -> None:
    answer = (
        '{"results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 0.9}]}'
    )
    found = read_ranking("far", answer, 2)
    assert (found.scores, found.order, found.tokens) == ([0.9, 0.5], [0, 1], 0)


@pytest.mark.parametrize(
    "answer",
    ["", "{}", '{"results": []}', '{"results": [{"index": 5, "relevance_score": 1}]}'],
)
def test_a_ranking_without_its_documents_is_an_error_of_that_server(answer: str) -> None:
    with pytest.raises(EngineError, match="far"):
        read_ranking("far", answer, 1)
