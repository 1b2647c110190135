"""KnowledgeBase and AsyncKnowledgeBase do what kb's functions do."""

import inspect
from uuid import UUID

import pytest

from kb_client import AlreadyExists, AsyncKnowledgeBase, Document, InvalidArgument, KnowledgeBase, NotFound, TimedOut

HOURS = "The office opens at seven and closes at eight in the evening."
BIKES = "Bicycles belong in the cellar, not in the hall."
PARKING = "Parking is free for staff on the second floor."


def fill(kb):
    kb.put_many(
        [
            Document(external_id="hours", content=HOURS, metadata={"site": "Berlin"}),
            {"external_id": "bicycles", "content": BIKES, "metadata": {"site": "Berlin"}},
            Document(external_id="parking", content=PARKING, metadata={"site": "Oslo", "floor": 2}, title="Cars"),
        ]
    )
    kb.wait(60)


def test_what_is_put_is_found_after_wait(kb):
    assert kb.put("bicycles", BIKES, metadata={"site": "Berlin"}, title="Bikes", uri="https://example.com/b") == "added"
    assert kb.put("bicycles", BIKES) == "skipped"
    kb.wait(60)
    hit = kb.query("Where do I leave my bike?")[0]
    assert (hit.rank, hit.external_id, hit.title, hit.content) == (1, "bicycles", "Bikes", BIKES)
    assert hit.metadata == {"site": "Berlin"}
    assert isinstance(hit.chunk_id, UUID)
    assert 0 < hit.score <= 1
    assert hit.rank_score == hit.score
    assert hit.stale is False
    document = kb.get(["nothing", "bicycles"])[0]
    assert (document.external_id, document.content, document.status) == ("bicycles", BIKES, "ready")
    assert kb.put("bicycles", "Bicycles belong in the yard.") == "updated"
    kb.wait(60)
    assert kb.query("bike")[0].content == "Bicycles belong in the yard."


def test_documents_are_put_together_and_filtered(kb):
    fill(kb)
    assert [hit.external_id for hit in kb.query("Where can I park?", filter={"site": "Oslo"})] == ["parking"]
    ranged = {"type": "and", "filters": [{"type": "gte", "key": "floor", "value": 1}, {"site": "Oslo"}]}
    assert [hit.external_id for hit in kb.query("floor", filter=ranged)] == ["parking"]
    assert len(kb.query("floor", top_k=2)) == 2
    assert kb.query("floor", min_score=0.999) == []
    assert [hit.external_id for hit in kb.query("cellar", mode="keyword")] == ["bicycles"]
    assert kb.query("cellar", mode="keyword")[0].score is None
    assert "ranks" in kb.query("cellar", mode="hybrid", options={"explain": True})[0].locator
    assert [document.external_id for document in kb.documents(page_size=2)] == ["bicycles", "hours", "parking"]


def test_documents_are_deleted_by_id_and_by_filter_and_all(kb):
    fill(kb)
    assert kb.delete("hours") is True
    assert kb.delete("hours") is False
    assert [(row.external_id, row.status) for row in kb.delete_many(["hours", "bicycles"])] == [
        ("hours", "not found"),
        ("bicycles", "deleted"),
    ]
    assert kb.delete_where({"site": "Berlin"}) == 0
    assert kb.delete_where({"type": "gt", "key": "floor", "value": 1}) == 1
    fill(kb)
    assert kb.clear() == 3
    assert kb.query("floor") == []


def test_context_is_one_text_for_a_prompt(kb):
    fill(kb)
    context = kb.context("Where do I leave my bike?", max_tokens=60, format="list", top_k=1)
    assert BIKES in context.context
    assert context.tokens <= 60
    assert context.blocks[0]["external_id"] == "bicycles"
    assert context.chunk_ids == [kb.query("Where do I leave my bike?", top_k=1)[0].chunk_id]
    assert context.truncated is False
    xml = kb.context("Where do I leave my bike?", format="xml").context
    assert xml.startswith("<")


def test_several_knowledge_bases_answer_in_one_order(kb, conninfo, name):
    fill(kb)
    other = KnowledgeBase(name + "/other", conninfo)
    with other:
        other.create(embedder="static")
        other.put("cars", "Cars are washed on Fridays.")
        other.wait(60)
        hits = kb.query("When are cars washed?", also=[other.kb_id], top_k=2)
        assert hits[0].kb_id == other.kb_id
        assert {hit.kb_id for hit in kb.query("parking", also=[other.kb_id], top_k=4)} == {kb.kb_id, other.kb_id}
        assert "Fridays" in kb.context("When are cars washed?", also=[other.kb_id]).context
        other.drop()


def test_a_vector_of_the_embedder_finds_what_its_text_does(kb):
    fill(kb)
    vectors = kb.embed(["Where can I park?", "bike"], kind="query")
    assert [len(vector) for vector in vectors] == [256, 256]
    assert kb.query_vector(vectors[0], top_k=1)[0].external_id == kb.query("Where can I park?", top_k=1)[0].external_id
    with pytest.raises(InvalidArgument, match="dimension"):
        kb.query_vector([1.0, 2.0])
    with pytest.raises(InvalidArgument, match="not finite"):
        kb.query_vector([float("nan")] * 256)


def test_a_file_is_read_by_the_server(kb):
    message = b"From: Ann Lee <ann@example.com>\nSubject: Painting\n\nThe cellar will be painted in May.\n"
    assert kb.put_file("mail", message, filename="painting.eml", metadata={"year": 2027}) == "added"
    assert kb.put("page", b"<html><body><h1>Trains</h1><p>Book second class.</p></body></html>") == "added"
    kb.wait(60)
    document = kb.get(["mail"])[0]
    assert document.title == "Painting"
    assert document.content.startswith("The cellar will be painted in May.")
    assert document.metadata["year"] == 2027
    assert kb.query("trains", top_k=1)[0].content.startswith("# Trains")


def test_a_document_that_cannot_be_processed_is_among_the_failures(kb):
    kb.put_file("broken.pdf", b"%PDF-1.7 this is no PDF")
    kb.wait(60)
    failure = kb.failures()[0]
    assert failure.external_id == "broken.pdf"
    assert failure.sqlstate == "22000"
    assert failure.attempts >= 1
    assert kb.failures(["nothing"]) == []


def test_a_chat_model_answers_with_citations(kb, chat_model, admin, name):
    admin.execute("SELECT kb.create_llm(%s, 'openai', 'a-model', base_url => %s)", [name, chat_model.url])
    kb.put("leave", "Everybody has thirty days of annual leave.", title="Leave")
    kb.wait(60)
    answer = kb.answer("How many days of leave do I have?", name)
    assert answer.answer == "Thirty days [1]."
    assert answer.annotations[0]["file_id"] == "leave"
    assert answer.chunks[0]["content"] == "Everybody has thirty days of annual leave."
    assert answer.usage == {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    assert (answer.finish_reason, answer.refused, answer.invalid_citations) == ("stop", False, [])
    assert "How many days" in str(chat_model.asked)
    nothing = kb.answer("Tea?", name, options={"min_score": 0.99, "refusal": "I do not know."})
    assert (nothing.answer, nothing.finish_reason, nothing.refused) == ("I do not know.", "no_context", True)
    admin.execute("SELECT kb.drop_llm(%s)", [name])


def test_create_says_if_it_exists_unless_told_not_to(kb):
    with pytest.raises(AlreadyExists):
        kb.create()
    kb.create(exist_ok=True, embedder="hash")
    assert len(kb.embed(["one"])[0]) == 256


def test_errors_have_what_the_server_says(kb, conninfo):
    with KnowledgeBase("nobody's", conninfo) as missing:
        for call in [
            lambda: missing.put("a", "text"),
            lambda: missing.query("text"),
            lambda: missing.wait(1),
            lambda: missing.delete("a"),
            lambda: missing.context("text"),
        ]:
            with pytest.raises(NotFound) as caught:
                call()
            assert caught.value.sqlstate == "42704"
            assert "nobody's" in caught.value.message
            assert "kb.knowledge_bases" in caught.value.hint
            assert "HINT: " in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        kb.query("text", options={"mmr": {"lambda": 7}, "hybrid": {"alpha": 9}})
    # All problems, in the message or its detail.
    assert "mmr" in str(caught.value)
    assert "hybrid" in str(caught.value)
    assert caught.value.__cause__ is not None
    with pytest.raises(InvalidArgument, match="top_k"):
        kb.query("text", top_k=-1)


def test_wait_ends_when_its_time_is_over(kb):
    kb.put_many({"external_id": str(n), "content": f"word{n} " * 200} for n in range(1000))
    with pytest.raises(TimedOut) as caught:
        kb.wait(0.001)
    assert caught.value.sqlstate == "55P03"
    kb.clear()


async def test_asyncio_has_the_same(akb, name):
    assert await akb.put("bicycles", BIKES, metadata={"site": "Berlin"}) == "added"
    stored = await akb.put_many([Document(external_id="hours", content=HOURS)])
    assert [row.status for row in stored] == ["added"]
    await akb.put_file("note", b"Keys are with the caretaker.", filename="note.txt")
    await akb.wait(60)
    assert (await akb.query("Where do I leave my bike?", filter={"site": "Berlin"}))[0].external_id == "bicycles"
    assert (await akb.query("keys", also=[name], top_k=1))[0].external_id == "note"
    assert BIKES in (await akb.context("bike")).context
    vector = (await akb.embed(["Where do I leave my bike?"], kind="query"))[0]
    assert (await akb.query_vector(vector, top_k=1))[0].external_id == "bicycles"
    assert [document.external_id async for document in akb.documents(page_size=1)] == ["bicycles", "hours", "note"]
    assert (await akb.get(["hours"]))[0].content == HOURS
    assert await akb.failures() == []
    assert await akb.delete("hours") is True
    assert (await akb.delete_many(["hours"]))[0].status == "not found"
    assert await akb.delete_where({"site": "Berlin"}) == 1
    assert await akb.clear() == 1
    with pytest.raises(NotFound):
        await akb.answer("text", "nobody")


def test_both_classes_have_the_same_methods():
    def signatures(kind):
        return {
            name: str(inspect.signature(member)).replace("Async", "").replace("-> 'Iterator", "-> 'Any")
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert signatures(AsyncKnowledgeBase) == signatures(KnowledgeBase)
