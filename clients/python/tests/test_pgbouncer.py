"""Behind PgBouncer with pool_mode = transaction and one connection for all clients."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_client import AsyncKnowledgeBase, KnowledgeBase

PGBOUNCER = os.environ.get("KB_TEST_PGBOUNCER")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")


@pytest.fixture
def tenants(conninfo, name):
    """The same id in two tenants, each with a client of its own behind PgBouncer."""
    with (
        KnowledgeBase(name, PGBOUNCER, tenant="acme") as acme,
        KnowledgeBase(name, PGBOUNCER, tenant="globex") as globex,
    ):
        for kb in (acme, globex):
            kb.create(embedder="static")
            kb.put_many([{"external_id": "lease", "content": f"The lease of {kb.tenant}."}])
            kb.wait(60)
        yield acme, globex
        acme.drop()
        globex.drop()


def test_tenants_are_not_mixed_up(tenants):
    def ask(n):
        kb = tenants[n % 2]
        kb.put(str(n), f"number {n}")
        return kb.query("lease", top_k=1)[0].content == f"The lease of {kb.tenant}."

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(60)))


def test_a_client_without_a_tenant_gets_that_of_nobody_else(tenants, name):
    with KnowledgeBase(name, PGBOUNCER) as nobody:
        for kb in tenants:
            assert kb.query("lease")
            assert nobody.get(["lease"]) == []


@pytest.mark.usefixtures("tenants")
async def test_tasks_are_not_mixed_up(name):
    async with (
        AsyncKnowledgeBase(name, PGBOUNCER, tenant="acme") as acme,
        AsyncKnowledgeBase(name, PGBOUNCER, tenant="globex") as globex,
    ):

        async def ask(n):
            kb = (acme, globex)[n % 2]
            return (await kb.query("lease", top_k=1))[0].content == f"The lease of {kb.tenant}."

        assert all(await asyncio.gather(*map(ask, range(60))))
