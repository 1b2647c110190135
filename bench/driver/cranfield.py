"""Retrieval on a collection in the form of BEIR, one chunk per document, judged as trec_eval and BEIR do. The figures of
Cranfield stand beside references; those of any other collection beside the same by hand: an exact scan, plain BM25 over the same
words, both lists fused."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path


import query
from measures import Answers, Words, by_bm25, fused, measured
from report import Report
from server import Server, put_documents

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
# Of nDCG@10.
WITHIN = {"dense": 0.003, "keyword": 0.01}
# Hybrid must not be below its reference, which may be rounded by so much.
ROUNDED = 0.0005
# Knowledge bases with their embedders, and the modes in which each is asked.
KNOWLEDGE_BASES = (
    ("minilm", "minilm_cut", ("dense", "keyword", "hybrid")),
    ("int8", "int8_cut", ("dense",)),
    ("static", "static", ("dense",)),
    ("hash", "hash", ("dense",)),
)
DATABASE, BATCH, TOP_K = "bench_cranfield", 200, 100
# Documents from which on there is an index for certain.
INDEXED = 1_200
# The first that is there.
JUDGEMENTS = ("qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv", "qrels/train.tsv")
TABLE = (
    "SELECT 'kb.' || quote_ident(b.table_name), b.build_no FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)"
    " WHERE k.id = %s AND b.state = 'live'"
)
EXACT = """
SELECT d.external_id
FROM (SELECT chunk_id, build_no, embedding <=> %(vector)s AS distance FROM {table} WHERE build_no = {build_no}
      ORDER BY (embedding <=> %(vector)s) + 0 LIMIT {top_k}) s
JOIN kb.chunks c USING (chunk_id, build_no)
JOIN kb.documents d USING (document_id)
ORDER BY s.distance"""
# The lexemes of texts, as to_tsvector counts them: it keeps 255 places of a lexeme at most, which kb does not bound.
WORDS = """
SELECT (SELECT coalesce(json_object_agg(lexeme, cardinality(positions)), '{}')
        FROM unnest(to_tsvector('english', given.content)))
FROM unnest(%s::text[]) WITH ORDINALITY AS given(content, place) ORDER BY place"""


@dataclass
class Collection:
    # The directory's.
    name: str
    # Those that have a text.
    documents: list[dict]
    # Those that are judged, by their ids.
    questions: dict[str, str]
    # Scores of documents, by questions.
    judged: dict[str, dict[str, int]]
    # The file that they are from.
    judgements: str

    @property
    def is_cranfield(self) -> bool:
        return self.name.lower() == "cranfield"

    @property
    def title(self) -> str:
        return "Cranfield" if self.is_cranfield else self.name

    @property
    def limit(self) -> float:
        """Seconds for the ingestion of all, and again for their indexes."""
        return max(590, len(self.documents) / 5)


def run(server: Server, report: Report) -> None:
    directory = server.cranfield
    if not directory or not (directory / "corpus.jsonl").is_file():
        report.note("cranfield: skipped, the collection is not there (CRANFIELD=directory)")
        return
    collection = read(directory)
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    megabytes = 64 + len(collection.documents) * 3 // 1000
    connection.execute(f"ALTER DATABASE {DATABASE} SET maintenance_work_mem = '{megabytes}MB'")
    connection.execute(f"ALTER DATABASE {DATABASE} SET max_parallel_maintenance_workers = 0")
    # A text longer than the model reads is cut, as in the reference.
    connection.execute(
        "SELECT kb.create_embedder('minilm_cut', 'local', 'all-MiniLM-L6-v2', config => '{\"truncate\": true}')"
    )
    connection.execute(
        "SELECT kb.create_embedder('int8_cut', 'local', 'all-MiniLM-L6-v2',"
        ' config => \'{"truncate": true, "compute": "int8"}\')'
    )
    for name, embedder, modes in KNOWLEDGE_BASES:
        fill(server, connection, name, embedder, collection)
        answers: dict[str, Answers] = {}
        for mode in modes:
            answers[mode] = ask(connection, name, mode, collection.questions)
            figures = measured(answers[mode], collection.judged)
            what = f"{collection.title}, {name}, {mode}: nDCG@10 / R@10 / R@100"
            if collection.is_cranfield:
                beside, beside_is = REFERENCE[name, mode], "reference"
            elif mode == "dense":
                by_hand, beside_is = exact(connection, name, embedder, collection.questions), "exact scan"
                beside = measured(by_hand, collection.judged)
            elif mode == "keyword":
                beside, beside_is = measured(keyword(connection, collection), collection.judged), "plain BM25"
            else:
                by_hand, beside_is = fused(answers["dense"], answers["keyword"], TOP_K), "RRF of both lists"
                beside = measured(by_hand, collection.judged)
            compare(report, what, figures, beside, beside_is, WITHIN.get(mode))
    report.note(
        f"{collection.title}: {len(collection.documents):,} documents, {len(collection.questions):,} queries of"
        f" {collection.judgements}, linear gains as in trec_eval and BEIR"
    )
    connection.close()


def read(directory: Path) -> Collection:
    """A collection without what has no text, and without queries that are not judged."""
    judgements = next((file for file in JUDGEMENTS if (directory / file).is_file()), None)
    if judgements is None:
        raise FileNotFoundError(f"no judgements in {directory}: {', '.join(JUDGEMENTS)}")
    documents = []
    for line in lines(directory / "corpus.jsonl"):
        document = json.loads(line)
        content = clean(f"{document.get('title') or ''} {document.get('text') or ''}")
        if content:
            documents.append({"external_id": str(document["_id"]), "content": content, "content_type": "text/plain"})
    queries = {}
    for line in lines(directory / "queries.jsonl"):
        asked = json.loads(line)
        queries[str(asked["_id"])] = clean(asked["text"])
    judged: dict[str, dict[str, int]] = {}
    for line in lines(directory / judgements)[1:]:
        query_id, document_id, score = line.rstrip("\n").split("\t")
        if queries.get(query_id):
            judged.setdefault(query_id, {})[document_id] = int(score)
    if not documents or not judged:
        raise ValueError(f"{directory} has {len(documents)} documents and {len(judged)} queries that are judged")
    name = os.path.basename(os.path.abspath(directory))
    return Collection(name, documents, {query_id: queries[query_id] for query_id in judged}, judged, judgements)


def lines(file: Path) -> list[str]:
    with file.open(encoding="utf-8") as opened:
        return [line for line in opened if line.strip()]


def clean(text: str) -> str:
    """Without what no text of PostgreSQL's has: NUL and halves of characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ").strip()


def fill(server: Server, connection, name: str, embedder: str, collection: Collection) -> None:
    # Every document counts by itself, also one whose text another has.
    connection.execute(
        "SELECT kb.create_knowledge_base(%s, embedder => %s, chunking => '{\"strategy\": \"none\"}',"
        " preprocess => '{\"dedupe\": false}')",
        [name, embedder],
    )
    documents = collection.documents
    put_documents(connection, name, documents, BATCH, collection.limit)
    ready, chunks = connection.execute("SELECT ready, chunks FROM kb.status WHERE kb_id = %s", [name]).fetchone()
    if (ready, chunks) != (len(documents), len(documents)):
        failed = "SELECT external_id || ': ' || error FROM kb.failures WHERE kb_id = %s LIMIT 1"
        (failure,) = connection.execute(failed, [name]).fetchone() or ("none failed",)
        raise AssertionError(f"{name}: {ready} documents ready in {chunks} chunks, not {len(documents)}; {failure}")
    if len(documents) >= INDEXED:
        server.await_indexes(connection, collection.limit, name)


def ask(connection, name: str, mode: str, questions: dict[str, str]) -> Answers:
    sql = f"SELECT external_id FROM kb.query(%s, %s, {TOP_K}, mode => %s)"
    return {
        query_id: [external_id for (external_id,) in connection.execute(sql, [name, text, mode]).fetchall()]
        for query_id, text in questions.items()
    }


def exact(connection, name: str, embedder: str, questions: dict[str, str]) -> Answers:
    """What somebody gets who compares all of the same vectors."""
    table, build_no = connection.execute(TABLE, [name]).fetchone()
    sql = EXACT.format(table=table, build_no=build_no, top_k=TOP_K)
    answers, all_of_them = {}, list(questions.items())
    for i in range(0, len(all_of_them), BATCH):
        part = all_of_them[i : i + BATCH]
        vectors = query.vectors_of(connection, embedder, [text for _, text in part])
        for (query_id, _), vector in zip(part, vectors):
            rows = connection.execute(sql, {"vector": vector}, prepare=True).fetchall()
            answers[query_id] = [external_id for (external_id,) in rows]
    return answers


def keyword(connection, collection: Collection) -> Answers:
    """What BM25 gives that knows every document's words, and nothing of phrases and exclusions."""
    questions = words_of(connection, collection.questions.values())
    documents = words_of(connection, (document["content"] for document in collection.documents))
    ids = (document["external_id"] for document in collection.documents)
    return by_bm25(zip(ids, documents), dict(zip(collection.questions, questions)), TOP_K)


def words_of(connection, texts: Iterable[str]) -> Iterator[Words]:
    """Those of each text, in their order; of a batch of texts at a time."""
    texts = iter(texts)
    while batch := list(islice(texts, BATCH)):
        for (words,) in connection.execute(WORDS, [batch]).fetchall():
            yield words


def compare(report: Report, what: str, figures, beside, beside_is: str, within: float | None) -> None:
    """One line; `within` None: at least as good."""
    difference = figures[0] - beside[0]
    if within is None:
        target, verdict = f"nDCG at least that, less {ROUNDED}", difference >= -ROUNDED
    else:
        target, verdict = f"nDCG within {within}", "above" if difference > within else difference >= -within
    report.add(what, shown(figures), f"{shown(beside)} ({beside_is})", f"{difference:+.4f}", target, verdict)


def shown(figures) -> str:
    return " / ".join(f"{figure:.3f}" for figure in figures)
