"""How good answers are: nDCG and recall as trec_eval and BEIR have them. And what kb is compared with: Reciprocal Rank Fusion
of two lists, and plain BM25."""

from array import array
from collections.abc import Iterable
from heapq import nlargest
from math import log, log2

# External ids of the answer to each question, best first, by the question's id.
Answers = dict[str, list[str]]
# How often a text has each word.
Words = dict[str, int]
# kb's defaults.
RRF_K = 60
K1, B = 1.2, 0.75


def measured(answers: Answers, judged: dict[str, dict[str, int]]) -> list[float]:
    """nDCG@10, recall@10 and recall@100, each the mean over all questions that are judged."""
    measures = (ndcg_at_10, lambda a, j: recall(a, j, 10), lambda a, j: recall(a, j, 100))
    return [sum(measure(answers[q], judged[q]) for q in judged) / len(judged) for measure in measures]


def gain(score: int) -> float:
    """Linear, as in trec_eval; judgements of 0 and below are not relevant."""
    return max(score, 0)


def ndcg_at_10(answer: list[str], judged: dict[str, int]) -> float:
    """Järvelin and Kekäläinen 2002, discount 1 / log2(rank + 1)."""

    def dcg(scores) -> float:
        return sum(gain(score) / log2(i + 2) for i, score in enumerate(scores[:10]))

    best = dcg(sorted(judged.values(), reverse=True))
    return dcg([judged.get(document, 0) for document in answer]) / best if best else 0.0


def recall(answer: list[str], judged: dict[str, int], k: int) -> float:
    relevant = {document for document, score in judged.items() if score > 0}
    return len(relevant & set(answer[:k])) / len(relevant) if relevant else 0.0


def fused(dense: Answers, keyword: Answers, top_k: int) -> Answers:
    """Cormack, Clarke and Büttcher 2009: the sum of 1 / (k + rank); of equal ones the first by meaning comes first."""
    answers = {}
    for query_id in dense:
        scores: dict[str, float] = {}
        for found in (dense[query_id], keyword[query_id]):
            for rank, document_id in enumerate(found, 1):
                scores[document_id] = scores.get(document_id, 0.0) + 1 / (RRF_K + rank)
        answers[query_id] = sorted(scores, key=scores.get, reverse=True)[:top_k]
    return answers


def by_bm25(documents: Iterable[tuple[str, Words]], questions: dict[str, Words], top_k: int) -> Answers:
    """Robertson and Zaragoza 2009, with Lucene's idf, ln(1 + (N - df + 0.5) / (df + 0.5)). A word that a question has twice counts
    twice. In memory are only the words that a question has, and the length of each document."""
    # Of each word the documents that have it, by their places, and how often they do.
    places: dict[str, tuple[array, array]] = {word: (array("I"), array("I")) for words in questions.values() for word in words}
    ids, lengths = [], array("Q")
    for document_id, words in documents:
        for word, times in words.items():
            if word in places:
                places[word][0].append(len(ids))
                places[word][1].append(times)
        ids.append(document_id)
        lengths.append(sum(words.values()))
    average = sum(lengths) / len(lengths) or 1.0
    norms = array("d", (K1 * (1 - B + B * length / average) for length in lengths))
    answers = {}
    for query_id, words in questions.items():
        scores: dict[int, float] = {}
        for word, times_asked in words.items():
            having, times = places[word]
            weight = times_asked * log(1 + (len(ids) - len(having) + 0.5) / (len(having) + 0.5)) * (K1 + 1)
            for place, f in zip(having, times):
                scores[place] = scores.get(place, 0.0) + weight * f / (f + norms[place])
        # Of equal ones the first in the collection comes first.
        answers[query_id] = [ids[place] for place in nlargest(top_k, scores, key=lambda place: (scores[place], -place))]
    return answers
