"""Odd values arrive unchanged, or are refused with a message that says why."""

import time
from datetime import UTC, date, datetime
from uuid import UUID

import psycopg
import pytest

from kb_client import Document, InvalidArgument, InvalidDocument, KbError, TooLarge

ODD = [
    "it's; DROP TABLE x; --",
    'double " quotes and \\ backslashes \\u0000',
    "percent %s %(kb_id)s %b",
    "a/b/../c d",
    "ünïcödé 日本語 🦀 \u202e rtl \u200b zero",
    "e\u0301 is not \u00e9",
    "tab\tand\nnewline",
    "{braces} $1 $$dollar$$ $q$",
    "x" * 1000,
]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_and_ids_arrive_unchanged(kb, text):
    kb.put(text, "word " + text, metadata={"key": text, text: {"deep": [text]}}, title=text)
    kb.put_many([Document(external_id="many/" + text[:900], content="other " + text, metadata={"key": text})])
    document = kb.get([text])[0]
    assert (document.external_id, document.title) == (text, text)
    assert document.metadata == {"key": text, text: {"deep": [text]}}
    kb.wait(60)
    assert kb.get([text])[0].content == "word " + text
    assert {hit.external_id for hit in kb.query("word " + text[:200], filter={"key": text})} == {
        text,
        "many/" + text[:900],
    }
    assert kb.delete(text) is True


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda kb: kb.put("a", "one\0two"), "content of document 'a' has a NUL character at position 3"),
        (lambda kb: kb.put("a\0", "one"), "external_id has a NUL"),
        (lambda kb: kb.put("a", "one", metadata={"x": ["\0"]}), "metadata has a NUL"),
        (lambda kb: kb.put("a", "one", metadata={"\0": 1}), "metadata has a NUL"),
        (lambda kb: kb.put_many([{"external_id": "b", "content": "x\0"}]), "document 'b' has a NUL"),
        (lambda kb: kb.query("one\0"), "the question has a NUL"),
        (lambda kb: kb.query("one", filter={"a": "\0"}), "filter has a NUL"),
        (lambda kb: kb.put("a", "lone \ud800"), "lone surrogate at position 5"),
        (lambda kb: kb.put("a", "one", metadata={"x": "\udfff"}), "lone surrogate"),
        (lambda kb: kb.put("a", "one", metadata={"x": float("nan")}), "metadata is no JSON"),
        (lambda kb: kb.put("a", "one", metadata={"x": object()}), "type object is no JSON"),
        (lambda kb: kb.put_many([{"external_id": "b", "content": "1"}] * 2), "'b' occurs twice"),
        (lambda kb: kb.put_many([{"content": "1"}]), "no external_id"),
        (lambda kb: kb.put_many([{"external_id": 7, "content": "1"}]), "no external_id of type str, but 7"),
        (lambda kb: kb.put_many([{"external_id": "a", "content": "1", "colour": 1}]), "colour"),
        (lambda kb: kb.put("", "one"), "external_id"),
        (lambda kb: kb.put("x" * 1001, "one"), "external_id"),
        (lambda kb: kb.query("one", filter={"type": "and", "filters": 7}), "filter"),
        (lambda kb: kb.query("one", mode="psychic"), "mode"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(kb, call, what):
    with pytest.raises(InvalidArgument) as caught:
        call(kb)
    assert what in str(caught.value)
    assert list(kb.documents()) == []


def test_bytes_that_are_no_text_are_refused(kb):
    with pytest.raises(InvalidDocument) as caught:
        kb.put("a", b"\xff\xfe\x00")
    assert caught.value.sqlstate == "22000"


def test_a_document_that_is_too_large_is_refused(kb, admin):
    size = admin.execute("SELECT pg_size_bytes(current_setting('kb.max_document_size'))").fetchone()[0]
    with pytest.raises(TooLarge) as caught:
        kb.put("a", "x" * (size + 1))
    assert caught.value.sqlstate == "54000"


def test_json_within_the_limits_of_recursion_is_stored_and_beyond_is_refused(kb):
    deep = {}
    for _ in range(99):
        deep = {"a": deep}
    kb.put("deep", "text", metadata=deep)
    assert kb.get(["deep"])[0].metadata == deep
    loop = {}
    loop["self"] = loop
    with pytest.raises(InvalidArgument, match="is no JSON"):
        kb.put("loop", "text", metadata=loop)


def test_times_and_uuids_are_compared_as_the_filters_do(kb):
    then = datetime(2027, 1, 31, 12, tzinfo=UTC)
    number = UUID(int=7)
    kb.put("a", "text", metadata={"on": date(2027, 1, 31), "at": then, "number": number})
    kb.wait(60)
    assert kb.query("text", filter={"type": "eq", "key": "at", "value": then})[0].external_id == "a"
    assert kb.query("text", filter={"type": "lt", "key": "on", "value": date(2027, 1, 31)}) == []
    assert kb.query("text", filter={"number": number})[0].metadata["number"] == str(number)


def test_a_huge_batch_is_all_or_nothing(kb):
    def documents(number):
        for n in range(number):
            yield {"external_id": f"{n:06}", "content": f"text {n}", "metadata": {"n": n}}
        yield {"external_id": "last", "content": "text", "colour": "an unknown key"}

    with pytest.raises(KbError, match="colour"):
        kb.put_many(documents(5_000))
    assert list(kb.documents()) == []


def test_a_batch_takes_time_in_proportion_to_its_size(kb, conninfo):
    def seconds(number):
        with psycopg.connect(conninfo) as connection:
            start = time.monotonic()
            stored = kb.using(connection).put_many(
                {"external_id": str(n), "content": f"text {n}"} for n in range(number)
            )
            taken = time.monotonic() - start
            assert len(stored) == number
            connection.rollback()
        return taken

    seconds(1000)
    small, large = seconds(2000), seconds(8000)
    assert large < 4 * small * 2.5, (small, large)


def test_a_document_larger_than_a_batch_goes_alone(kb, conninfo):
    texts = {str(n): ("word " * 1_200_000) + str(n) for n in range(3)}
    # Undone, so that the worker does not cut 18 MB.
    with psycopg.connect(conninfo) as connection:
        stored = kb.using(connection).put_many({"external_id": name, "content": text} for name, text in texts.items())
        assert [row.external_id for row in stored] == list(texts)
        assert [len(row.content) for row in kb.using(connection).get(["2"])] == [len(texts["2"])]
        connection.rollback()


def test_a_batch_that_is_not_committed_waits_for_nobody(kb, conninfo):
    with psycopg.connect(conninfo) as connection:
        kb.using(connection).put_many({"external_id": str(n), "content": "text"} for n in range(2001))
        assert kb.put("other", "text") == "added"
        kb.wait(60)
        connection.rollback()
    assert [document.external_id for document in kb.documents()] == ["other"]


def test_nothing_is_put_of_an_empty_batch(kb):
    assert kb.put_many([]) == []
    assert kb.get([]) == []
    assert kb.delete_many([]) == []
    assert kb.embed([]) == []
