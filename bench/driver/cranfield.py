"""Retrieval on the Cranfield collection, one chunk per document, judged as trec_eval and BEIR do."""

import json
from math import log2

from psycopg.types.json import Jsonb

from report import Report
from server import Server

# nDCG@10, recall@10, recall@100 of shared/data/cranfield/README.md.
REFERENCE = {
    ("minilm", "dense"): (0.374, 0.414, 0.776),
    ("minilm", "keyword"): (0.360, 0.393, 0.731),
    ("minilm", "hybrid"): (0.403, 0.438, 0.785),
    # Of f32: rounding must not cost more than the order of summing.
    ("int8", "dense"): (0.374, 0.414, 0.776),
    ("static", "dense"): (0.308, 0.334, 0.677),
    ("hash", "dense"): (0.153, 0.157, 0.396),
}
# Of nDCG@10; hybrid must not be below its reference.
WITHIN = {"dense": 0.003, "keyword": 0.01, "hybrid": 0.0}


def run(server: Server, report: Report) -> None:
    directory = server.cranfield
    if not directory or not (directory / "corpus.jsonl").is_file():
        report.note("cranfield: skipped, the collection is not there (CRANFIELD=directory)")
        return
    corpus = [json.loads(line) for line in (directory / "corpus.jsonl").open()]
    queries = {q["_id"]: q["text"] for q in map(json.loads, (directory / "queries.jsonl").open())}
    judged: dict[str, dict[str, int]] = {}
    for line in (directory / "qrels.tsv").read_text().splitlines()[1:]:
        query_id, document_id, score = line.split("\t")
        judged.setdefault(query_id, {})[document_id] = int(score)

    connection = server.fresh("bench_cranfield")
    # A text longer than the model reads is cut, as in the reference.
    connection.execute(
        "SELECT kb.create_embedder('minilm_cut', 'local', 'all-MiniLM-L6-v2', config => '{\"truncate\": true}')"
    )
    connection.execute(
        "SELECT kb.create_embedder('int8_cut', 'local', 'all-MiniLM-L6-v2',"
        ' config => \'{"truncate": true, "compute": "int8"}\')'
    )
    given = [
        Jsonb({"external_id": d["_id"], "content": f"{d['title']} {d['text']}".strip(), "content_type": "text/plain"})
        for d in corpus
        if d["text"].strip()
    ]
    for name, embedder in (("minilm", "minilm_cut"), ("int8", "int8_cut"), ("static", "static"), ("hash", "hash")):
        connection.execute(
            'SELECT kb.create_knowledge_base(%s, embedder => %s, chunking => \'{"strategy": "none"}\')',
            [name, embedder],
        )
        for i in range(0, len(given), 100):
            connection.execute("SELECT count(*) FROM kb.put_documents(%s, %s)", [name, given[i : i + 100]])
        connection.execute("SELECT kb.wait(%s, 590)", [name])
        ready, chunks = connection.execute("SELECT ready, chunks FROM kb.status WHERE kb_id = %s", [name]).fetchone()
        if (ready, chunks) != (len(given), len(given)):
            raise AssertionError(f"{name}: {ready} documents ready in {chunks} chunks, not {len(given)}")
        for mode in (mode for (embedder_name, mode) in REFERENCE if embedder_name == name):
            judge(connection, report, name, mode, queries, judged)
    report.note(f"cranfield: {len(given)} documents, {len(judged)} queries, linear gains as in trec_eval and BEIR")
    connection.close()


def judge(connection, report: Report, name: str, mode: str, queries: dict, judged: dict) -> None:
    answers = {}
    for query_id in judged:
        rows = connection.execute(
            "SELECT external_id FROM kb.query(%s, %s, 100, mode => %s)", [name, queries[query_id], mode]
        ).fetchall()
        answers[query_id] = [external_id for (external_id,) in rows]
    figures = [
        sum(measure(answers[q], judged[q]) for q in judged) / len(judged)
        for measure in (ndcg_at_10, lambda a, j: recall(a, j, 10), lambda a, j: recall(a, j, 100))
    ]
    expected = REFERENCE[name, mode]
    report.add(
        f"Cranfield, {name}, {mode}: nDCG@10 / R@10 / R@100",
        " / ".join(f"{figure:.3f}" for figure in figures),
        " / ".join(f"{figure:.3f}" for figure in expected) + " (reference)",
        f"{figures[0] - expected[0]:+.4f}",
        f"nDCG within {WITHIN[mode]}",
        "above" if figures[0] - expected[0] > WITHIN[mode] else figures[0] - expected[0] >= -WITHIN[mode],
    )


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
