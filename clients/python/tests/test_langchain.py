"""What the standard suites do not ask for."""

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from kb_client import AsyncKnowledgeBase, InvalidArgument, KbError, ProcessingFailed
from kb_client.langchain import KnowledgeBaseEmbeddings, KnowledgeBaseRetriever, KnowledgeBaseVectorStore

TEXTS = [
    "Bicycles belong in the cellar.",
    "Bikes belong in the cellar, always.",
    "The office opens at seven.",
    "Parking is free for staff.",
]
METADATAS = [{"site": "Berlin", "n": n} for n in range(3)] + [{"site": "Oslo", "n": 3}]


@pytest.fixture
def store(kb):
    return KnowledgeBaseVectorStore.from_texts(TEXTS, metadatas=METADATAS, ids=["a", "b", "c", "d"], kb=kb)


def ids(found):
    return [document.id for document in found]


def test_a_filter_and_kbs_arguments_reach_the_search(store):
    assert ids(store.similarity_search("parking", filter={"site": "Oslo"})) == ["d"]
    assert ids(store.similarity_search("office", k=1, mode="keyword")) == ["c"]
    assert store.similarity_search("parking", min_score=0.9999) == []
    assert ids(store.search("office", "similarity", k=1)) == ["c"]
    with pytest.raises(InvalidArgument):
        store.similarity_search("parking", filter={"type": "and", "filters": 7})


def test_scores_fall_and_relevance_is_the_similarity(store):
    scored = store.similarity_search_with_score(TEXTS[2], k=4)
    assert scored[0][0].id == "c"
    assert scored[0][1] == pytest.approx(1, abs=1e-3)
    assert [score for _, score in scored] == sorted((score for _, score in scored), reverse=True)
    relevant = store.similarity_search_with_relevance_scores(TEXTS[2], k=4, score_threshold=0.9)
    assert ids([document for document, _ in relevant]) == ["c"]
    assert all(score is not None for _, score in store.similarity_search_with_score("cellar", mode="keyword"))


def test_marginal_relevance_prefers_what_differs(store):
    assert ids(store.similarity_search(TEXTS[0], k=2)) == ["a", "b"]
    diverse = ids(store.max_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=0.1))
    assert diverse[0] == "a"
    assert diverse[1] != "b"
    vector = store.embeddings.embed_query(TEXTS[0])
    assert ids(store.max_marginal_relevance_search_by_vector(vector, k=2, lambda_mult=0.1)) == diverse
    assert ids(store.max_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=1)) == ["a", "b"]


def test_a_search_by_the_embedders_vector_is_the_search_by_text(store):
    embeddings = store.embeddings
    assert isinstance(embeddings, KnowledgeBaseEmbeddings)
    assert len(embeddings.embed_documents(TEXTS)) == 4
    vector = embeddings.embed_query("Where do bikes go?")
    assert ids(store.similarity_search_by_vector(vector, k=4)) == ids(store.similarity_search("Where do bikes go?"))


def test_the_retriever_of_a_store_has_its_kinds_of_search(store):
    assert len(store.as_retriever(search_kwargs={"k": 2}).invoke("bike")) == 2
    threshold = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.95})
    assert ids(threshold.invoke(TEXTS[3])) == ["d"]
    assert ids(store.as_retriever(search_type="mmr", search_kwargs={"k": 1}).invoke(TEXTS[3])) == ["d"]


def test_documents_are_deleted_by_ids_and_by_filter_and_all(store):
    store.delete(filter={"site": "Oslo"})
    assert ids(store.get_by_ids(["a", "b", "c", "d"])) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="not both"):
        store.delete(["a"], filter={"site": "Berlin"})
    store.delete([])
    assert len(store.get_by_ids(["a", "b", "c"])) == 3
    store.delete()
    assert store.get_by_ids(["a", "b", "c"]) == []


def test_ids_of_documents_stay_and_the_others_are_new(store):
    added = store.add_documents([Document("One more.", id="e"), Document("Another."), Document("Third.")])
    assert added[0] == "e"
    assert len(set(added)) == 3
    assert store.add_documents([]) == []
    with pytest.raises(ValueError, match="2 ids for 1 documents"):
        store.add_documents([Document("One.")], ids=["x", "y"])
    with pytest.raises(InvalidArgument, match="occurs twice"):
        store.add_texts(["1", "2"], ids=["same", "same"])
    assert store.get_by_ids(["same"]) == []


def test_a_long_text_is_cut_and_read_back_whole(kb):
    kb.drop()
    kb.create(embedder="static", chunking={"size": 30, "overlap": 0})
    store = KnowledgeBaseVectorStore(kb)
    text = "\n\n".join(f"Paragraph {n} is about {topic}." for n, topic in enumerate(["bikes", "cars", "tea"] * 20))
    store.add_texts([text], ids=["long"])
    found = store.similarity_search("tea", k=4)
    assert ids(found) == ["long"] * 4
    assert all(len(document.page_content) < len(text) for document in found)
    assert store.get_by_ids(["long"])[0].page_content == text


def test_text_that_looks_like_a_page_stays_as_it_is(kb):
    page = "<html><body><p>Trains</p></body></html>"
    store = KnowledgeBaseVectorStore(kb)
    store.add_texts([page], ids=["page.html"])
    assert store.get_by_ids(["page.html"])[0].page_content == page
    KnowledgeBaseVectorStore(kb, content_type=None).add_texts([page + " "], ids=["page.html"])
    assert store.get_by_ids(["page.html"])[0].page_content == "Trains"


def test_a_document_that_cannot_be_embedded_is_an_error(kb, admin, name, chat_model):
    admin.execute("SELECT kb.create_embedder(%s, 'openai', 'm', 8, base_url => %s)", [name, chat_model.url])
    kb.drop()
    kb.create(embedder=name)
    # That server makes no embeddings.
    with pytest.raises(ProcessingFailed) as caught:
        KnowledgeBaseVectorStore(kb, wait_timeout=60).add_texts(["text"], ids=["a"])
    assert isinstance(caught.value, KbError)
    assert caught.value.failures[0].external_id == "a"
    assert caught.value.sqlstate == "58000"
    assert KnowledgeBaseVectorStore(kb, wait=False).add_texts(["text"], ids=["b"]) == ["b"]
    kb.drop()
    admin.execute("SELECT kb.drop_embedder(%s)", [name])
    kb.create(embedder="static")


def test_an_embedding_of_the_callers_is_refused(kb):
    from langchain_core.embeddings import DeterministicFakeEmbedding

    with pytest.raises(NotImplementedError, match="does not take vectors"):
        KnowledgeBaseVectorStore.from_texts(["a"], DeterministicFakeEmbedding(size=6), kb=kb)
    assert KnowledgeBaseVectorStore.from_texts(["a"], KnowledgeBaseEmbeddings(kb), kb=kb).kb is kb


def test_the_retriever_says_where_a_passage_is_from(store, kb):
    retriever = KnowledgeBaseRetriever(kb=kb, k=1, filter={"site": "Berlin"}, options={"explain": True})
    found = retriever.invoke("When does the office open?")[0]
    about = found.metadata["kb"]
    assert found.metadata["site"] == "Berlin"
    assert (about["external_id"], about["kb_id"], about["rank"]) == ("c", kb.kb_id, 1)
    assert "ranks" in about["locator"]
    assert found.id == about["chunk_id"]
    assert len(retriever.invoke("office", k=3)) == 3
    assert retriever.invoke("office", filter={"site": "Oslo"})[0].metadata["kb"]["external_id"] == "d"
    with pytest.raises(ValueError, match="needs kb"):
        KnowledgeBaseRetriever()


def test_the_retriever_is_part_of_a_chain(store, kb):
    chain = {"context": KnowledgeBaseRetriever(kb=kb, k=1), "question": RunnablePassthrough()} | RunnableLambda(
        lambda parts: f"{parts['question']} {parts['context'][0].page_content}"
    )
    assert chain.invoke("When does the office open?") == "When does the office open? " + TEXTS[2]


def test_the_indexing_of_langchain_keeps_a_store_in_step(kb):
    store = KnowledgeBaseVectorStore(kb)
    records = InMemoryRecordManager(namespace="kb")
    records.create_schema()

    def run(texts):
        documents = [Document(text, metadata={"source": "wiki"}) for text in texts]
        result = index(documents, records, store, cleanup="full", source_id_key="source", key_encoder="sha256")
        return result["num_added"], result["num_skipped"], result["num_deleted"]

    assert run(TEXTS) == (4, 0, 0)
    assert run(TEXTS[1:]) == (0, 3, 1)
    assert len(list(kb.documents())) == 3


async def test_asyncio_has_the_same(store, kb, conninfo):
    async with AsyncKnowledgeBase(kb.kb_id, conninfo) as async_kb:
        for own in (KnowledgeBaseVectorStore(kb, async_kb=async_kb), KnowledgeBaseVectorStore(kb)):
            assert ids(await own.asimilarity_search("parking", filter={"site": "Oslo"})) == ["d"]
            scored = await own.asimilarity_search_with_score(TEXTS[2], k=1)
            assert scored[0][1] == pytest.approx(1, abs=1e-3)
            relevant = await own.asimilarity_search_with_relevance_scores(TEXTS[2], k=4, score_threshold=0.9)
            assert ids([document for document, _ in relevant]) == ["c"]
            diverse = await own.amax_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=0.1)
            assert ids(diverse) == ids(store.max_marginal_relevance_search(TEXTS[0], k=2, lambda_mult=0.1))
            vector = await own.embeddings.aembed_query(TEXTS[0])
            assert await own.embeddings.aembed_documents(TEXTS[:1]) == store.embeddings.embed_documents(TEXTS[:1])
            assert ids(await own.asimilarity_search_by_vector(vector, k=1)) == ["a"]
            assert ids(await own.amax_marginal_relevance_search_by_vector(vector, k=1)) == ["a"]
            await own.aadd_texts(["New."], ids=["e"])
            assert ids(await own.aget_by_ids(["e"])) == ["e"]
            await own.adelete(filter={"type": "eq", "key": "$external_id", "value": "e"})
            assert await own.aget_by_ids(["e"]) == []
        retriever = KnowledgeBaseRetriever(async_kb=async_kb, k=1)
        assert (await retriever.ainvoke(TEXTS[3]))[0].metadata["kb"]["external_id"] == "d"
        with pytest.raises(NotImplementedError):
            retriever.invoke("parking")
        made = await KnowledgeBaseVectorStore.afrom_texts(["Made."], ids=["f"], kb=kb, async_kb=async_kb)
        await made.adelete()
        assert list(kb.documents()) == []
