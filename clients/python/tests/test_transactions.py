"""Tenants, transactions, threads and tasks, and connections that break."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from kb_client import (
    AsyncKnowledgeBase,
    ConnectionLost,
    ExtensionMissing,
    InvalidState,
    KbError,
    KnowledgeBase,
    NotFound,
    PermissionDenied,
)


def tenant_of(connection):
    return connection.execute("SELECT current_setting('kb.tenant', true)").fetchone()[0] or ""


@pytest.fixture
def tenants(conninfo, name):
    """The same id in two tenants."""
    with KnowledgeBase(name, conninfo, tenant="acme") as acme, KnowledgeBase(name, conninfo, tenant="it's") as its:
        for kb in (acme, its):
            kb.create(embedder="static")
            kb.put("lease", f"The lease of {kb.tenant}.")
        acme.wait(60)
        its.wait(60)
        yield acme, its
        acme.drop()
        its.drop()


def test_a_tenant_sees_its_own_documents_only(tenants, conninfo, name):
    acme, its = tenants
    assert [hit.content for hit in acme.query("lease")] == ["The lease of acme."]
    assert [hit.content for hit in its.query("lease")] == ["The lease of it's."]
    assert [document.content for document in acme.documents()] == ["The lease of acme."]
    assert acme.get(["lease"])[0].content == "The lease of acme."
    with KnowledgeBase(name, conninfo) as nobody, KnowledgeBase(name, conninfo, tenant="globex") as globex:
        for stranger in (nobody, globex):
            with pytest.raises(NotFound):
                stranger.query("lease")
            assert stranger.get(["lease"]) == []
            assert list(stranger.documents()) == []


def test_a_superuser_reads_one_tenant_at_a_time(tenants, superuser, name):
    with KnowledgeBase(name, superuser, tenant="acme") as kb, KnowledgeBase(name, superuser) as other:
        assert [document.content for document in kb.documents()] == ["The lease of acme."]
        assert other.get(["lease"]) == []
        assert other.failures() == []


@pytest.mark.usefixtures("tenants")
def test_a_shared_knowledge_base_is_read_but_not_written(conninfo, name):
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("SELECT set_config('kb.tenant', 'acme', false)")
        connection.execute("SELECT kb.share(%s, 'globex')", [name])
    with KnowledgeBase(name, conninfo, tenant="globex") as globex:
        assert [hit.content for hit in globex.query("lease")] == ["The lease of acme."]
        assert globex.get(["lease"])[0].content == "The lease of acme."
        with pytest.raises(PermissionDenied) as caught:
            globex.put("lease", "mine")
        assert caught.value.sqlstate == "42501"


def test_a_tenant_does_not_stay_on_a_connection_that_is_shared(tenants, conninfo, name):
    # One connection for all, as behind a proxy that assigns connections for one transaction at a time.
    with ConnectionPool(conninfo, min_size=1, max_size=1, open=True) as pool:
        acme = KnowledgeBase(name, pool, tenant="acme")
        its = KnowledgeBase(name, pool, tenant="it's")
        nobody = KnowledgeBase(name, pool)
        for _ in range(7):
            assert acme.query("lease")[0].content == "The lease of acme."
            with pytest.raises(NotFound):
                nobody.query("lease")
            assert its.query("lease")[0].content == "The lease of it's."
            with pytest.raises(KbError):
                acme.query("")
            with pool.connection() as connection:
                assert tenant_of(connection) == ""


def test_a_transaction_of_the_callers_gets_its_tenant_back(tenants, conninfo, name):
    with psycopg.connect(conninfo) as connection:
        connection.execute("SELECT set_config('kb.tenant', 'mine', true)")
        kb = KnowledgeBase(name, connection, tenant="acme")
        assert kb.query("lease")[0].content == "The lease of acme."
        assert tenant_of(connection) == "mine"
        with pytest.raises(KbError, match="NUL"):
            kb.put("a", "\0")
        assert tenant_of(connection) == "mine"
        with pytest.raises(KbError), connection.transaction():
            kb.query("")
        assert tenant_of(connection) == "mine"


@pytest.mark.parametrize("autocommit", [False, True])
def test_what_is_put_in_a_transaction_is_rolled_back_with_it(kb, conninfo, autocommit):
    class Undo(Exception):
        pass

    def attempt(connection):
        with connection.transaction():
            kb.using(connection).put("a", "text")
            kb.using(connection).put_many({"external_id": str(n), "content": "text"} for n in range(2500))
            assert len(list(kb.using(connection).documents())) == 2501
            raise Undo

    with psycopg.connect(conninfo, autocommit=autocommit) as connection, pytest.raises(Undo):
        attempt(connection)
    assert list(kb.documents()) == []


def test_the_callers_transaction_is_never_committed(kb, conninfo):
    with psycopg.connect(conninfo) as connection:
        # The first statement on the connection begins a transaction, as any other would.
        kb.using(connection).put("a", "text")
        assert kb.get(["a"]) == []
        connection.rollback()
        assert kb.get(["a"]) == []
        tenant = KnowledgeBase(kb.kb_id, connection, tenant="")
        tenant.put_many([{"external_id": "b", "content": "text"}])
        assert kb.get(["b"]) == []
        connection.commit()
        assert kb.get(["b"])[0].status in {"pending", "ready"}


def test_wait_in_the_transaction_that_put_is_refused(kb, conninfo):
    with psycopg.connect(conninfo) as connection:
        own = kb.using(connection)
        own.put("a", "text")
        with pytest.raises(InvalidState) as caught:
            own.wait(5)
        assert caught.value.sqlstate == "55000"
        connection.rollback()
        own.wait(5)


def test_an_autocommit_connection_of_the_callers_commits(kb, conninfo):
    with psycopg.connect(conninfo, autocommit=True) as connection:
        kb.using(connection).put("a", "text")
        kb.using(connection).wait(60)
        assert kb.get(["a"])[0].status == "ready"


def test_a_failed_batch_leaves_nothing_of_the_earlier_ones(kb, conninfo):
    with psycopg.connect(conninfo, autocommit=True) as connection:
        documents = [{"external_id": str(n), "content": "text"} for n in range(1500)]
        documents.append({"external_id": "x" * 1001, "content": "text"})
        with pytest.raises(KbError):
            kb.using(connection).put_many(documents)
        assert kb.get(["0"]) == []


def test_threads_share_an_object(tenants, conninfo, name):
    acme, its = tenants

    def ask(n):
        kb = (acme, its)[n % 2]
        kb.put(f"{n}", f"number {n}")
        return kb.query("lease", top_k=1)[0].content == f"The lease of {kb.tenant}."

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(80)))
    assert len(list(acme.documents())) == 41


@pytest.mark.parametrize("autocommit", [False, True])
def test_threads_that_share_one_connection_take_turns(tenants, conninfo, name, autocommit):
    with psycopg.connect(conninfo, autocommit=autocommit) as connection, ThreadPoolExecutor(8) as threads:
        kbs = [KnowledgeBase(name, connection, tenant=tenant) for tenant in ("acme", "it's")]

        def ask(n):
            kb = kbs[n % 2]
            kb.put_many([{"external_id": f"{n}", "content": f"number {n}"}])
            return kb.query("lease", top_k=1)[0].content == f"The lease of {kb.tenant}."

        assert all(threads.map(ask, range(60)))


async def test_tasks_share_an_object(tenants, conninfo, name):
    async with (
        AsyncKnowledgeBase(name, conninfo, tenant="acme") as acme,
        AsyncKnowledgeBase(name, conninfo, tenant="it's", max_connections=2) as its,
    ):

        async def ask(n):
            kb = (acme, its)[n % 2]
            await kb.put(f"{n}", f"number {n}")
            return (await kb.query("lease", top_k=1))[0].content == f"The lease of {kb.tenant}."

        assert all(await asyncio.gather(*map(ask, range(60))))


@pytest.mark.parametrize("autocommit", [False, True])
async def test_tasks_that_share_one_connection_take_turns(tenants, conninfo, name, autocommit):
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=autocommit) as connection:
        kbs = [AsyncKnowledgeBase(name, connection, tenant=tenant) for tenant in ("acme", "it's")]

        async def ask(n):
            kb = kbs[n % 2]
            await kb.put_many([{"external_id": f"{n}", "content": f"number {n}"}])
            return (await kb.query("lease", top_k=1))[0].content == f"The lease of {kb.tenant}."

        assert all(await asyncio.gather(*map(ask, range(40))))


async def test_asyncio_joins_the_callers_transaction(akb, conninfo):
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        await connection.execute("SELECT set_config('kb.tenant', 'mine', true)")
        own = AsyncKnowledgeBase(akb.kb_id, connection, tenant="")
        await own.put("a", "text")
        setting = await (await connection.execute("SELECT current_setting('kb.tenant')")).fetchone()
        assert setting == ("mine",)
        assert await akb.get(["a"]) == []
        with pytest.raises(InvalidState):
            await own.wait(5)
        await connection.rollback()
        assert await akb.get(["a"]) == []


async def test_a_task_that_is_cancelled_gives_its_connection_back(akb, conninfo, admin):
    async with AsyncConnectionPool(conninfo, min_size=1, max_size=1, open=False) as pool:
        kb = AsyncKnowledgeBase(akb.kb_id, pool)
        # Nothing is processed while this lock is held, so that wait cannot end.
        with psycopg.connect(admin.info.dsn) as blocker:
            await akb.put("a", "text " * 50)
            blocker.execute("LOCK TABLE kb.chunks IN ACCESS EXCLUSIVE MODE")
            await akb.put("b", "text")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await kb.wait()
        async with asyncio.timeout(30):
            await kb.wait()
            assert [hit.external_id for hit in await kb.query("text", top_k=1)]


def test_a_broken_connection_is_an_error_of_its_own_and_a_pool_recovers(kb, conninfo, admin):
    def break_all():
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kb-client tests'"
        )

    kb.put("a", "text")
    kb.wait(60)
    break_all()
    assert kb.query("text")[0].external_id == "a"

    with psycopg.connect(conninfo) as connection:
        own = kb.using(connection)
        own.put("b", "text")
        break_all()
        with pytest.raises(ConnectionLost):
            own.query("text")
        with pytest.raises(ConnectionLost):
            own.query("text")
    assert kb.get(["b"]) == []

    started = threading.Event()

    def wait():
        started.set()
        kb.wait()

    # While a call runs.
    with psycopg.connect(admin.info.dsn) as blocker, ThreadPoolExecutor(1) as threads:
        blocker.execute("LOCK TABLE kb.chunks IN ACCESS EXCLUSIVE MODE")
        kb.put("c", "text")
        waiting = threads.submit(wait)
        started.wait()
        while not admin.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT kb.wait%'").fetchone()[
            0
        ]:
            pass
        break_all()
        with pytest.raises(ConnectionLost):
            waiting.result(30)
    kb.wait(60)


def test_a_server_that_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(ConnectionLost) as caught:
        KnowledgeBase("a", f"host={tmp_path} dbname=x")
    assert str(tmp_path) in caught.value.message


async def test_a_server_that_is_not_there_is_an_error_for_tasks_too(tmp_path):
    kb = AsyncKnowledgeBase("a", f"host={tmp_path} dbname=x")
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            await kb.query("text")
    await kb.close()


def test_a_database_without_kb_is_an_error_that_says_so(superuser):
    with KnowledgeBase("a", make_conninfo(superuser, dbname="template1")) as kb:
        with pytest.raises(ExtensionMissing) as caught:
            kb.query("text")
        assert "CREATE EXTENSION kb" in caught.value.hint


def test_a_reader_may_not_write(kb, admin, superuser):
    admin.execute("DROP ROLE IF EXISTS kb_client_reader")
    admin.execute("CREATE ROLE kb_client_reader LOGIN")
    admin.execute("GRANT kb_reader TO kb_client_reader")
    with KnowledgeBase(kb.kb_id, make_conninfo(superuser, user="kb_client_reader")) as reader:
        assert reader.query("text") == []
        with pytest.raises(PermissionDenied):
            reader.put("a", "text")
    admin.execute("DROP ROLE kb_client_reader")
