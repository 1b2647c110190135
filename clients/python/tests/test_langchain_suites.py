"""The standard suites of langchain-tests. kb embeds the documents itself.

The suite for vector stores brings an embedding of its own. With that, every test is expected to fail: kb does
not take vectors of the caller's yet.
"""

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from kb_client import AsyncKnowledgeBase, KnowledgeBase
from kb_client.langchain import KnowledgeBaseRetriever, KnowledgeBaseVectorStore


class TestVectorStore(VectorStoreIntegrationTests):
    """The asynchronous methods run on asyncio."""

    @pytest.fixture
    async def vectorstore(self, kb, conninfo):
        async with AsyncKnowledgeBase(kb.kb_id, conninfo) as async_kb:
            yield KnowledgeBaseVectorStore(kb, async_kb=async_kb, wait_timeout=60)


class TestVectorStoreInThreads(VectorStoreIntegrationTests):
    """The asynchronous methods run the synchronous ones in threads."""

    @pytest.fixture
    def vectorstore(self, kb):
        return KnowledgeBaseVectorStore(kb, wait_timeout=60)


class TestVectorStoreOfATenant(VectorStoreIntegrationTests):
    """A store of a tenant, behind a pool of one connection."""

    @pytest.fixture
    async def vectorstore(self, conninfo, name):
        with KnowledgeBase(name, conninfo, tenant="acme", max_connections=1) as kb:
            kb.create(embedder="static")
            async with AsyncKnowledgeBase(name, conninfo, tenant="acme", max_connections=1) as async_kb:
                yield KnowledgeBaseVectorStore(kb, async_kb=async_kb, wait_timeout=60)
            kb.drop()


class TestVectorStoreWithVectorsOfTheCaller(VectorStoreIntegrationTests):
    expected_to_fail = {"vectorstore": "kb takes no vectors of the caller's yet, so not those of the suite's embedding"}

    @pytest.fixture
    def vectorstore(self, conninfo, name):
        with KnowledgeBase(name, conninfo) as kb:
            return KnowledgeBaseVectorStore(kb, embedding=self.get_embeddings())


class Retriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    async def _documents(self, kb, conninfo):
        kb.put_many({"external_id": f"{n}", "content": f"Bicycle {n} is in the cellar."} for n in range(5))
        kb.wait(60)
        self.kb = kb
        async with AsyncKnowledgeBase(kb.kb_id, conninfo) as async_kb:
            self.async_kb = async_kb
            yield

    @property
    def retriever_constructor(self):
        return KnowledgeBaseRetriever

    @property
    def retriever_query_example(self):
        return "Where is my bicycle?"


class TestRetriever(Retriever):
    @property
    def retriever_constructor_params(self):
        return {"kb": self.kb, "async_kb": self.async_kb}


class TestRetrieverInThreads(Retriever):
    @property
    def retriever_constructor_params(self):
        return {"kb": self.kb}


# It is a base, not a suite.
del Retriever
