"""The examples of ../examples do what they say. That for Node has tests of its own: tools/test-clients.sh runs them."""

import importlib
import json
import os
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kb_client import InvalidArgument, InvalidState, KnowledgeBase, NotFound

EXAMPLES = Path(__file__).parents[2] / "examples"

BIKES = "Bicycles belong in the cellar."
LEAVE = "Staff have 28 days of paid leave."


@pytest.fixture
def customers(conninfo):
    yield "it's acme", "globex"
    for customer in ("it's acme", "globex"):
        with KnowledgeBase("articles", conninfo, tenant=customer) as kb:
            kb.drop()


def test_sqlalchemy(monkeypatch, conninfo, customers):
    from sqlalchemy import func, select
    from sqlalchemy.orm import Session

    monkeypatch.syspath_prepend(EXAMPLES / "sqlalchemy")
    example = importlib.import_module("articles")
    where = conninfo_to_dict(conninfo)
    engine = example.connect(where["host"], int(where["port"]), where["user"], where["dbname"])
    example.Base.metadata.create_all(engine)
    acme, globex = customers

    def article(customer, section, title, body):
        return example.Article(customer=customer, section=section, title=title, body=body)

    with Session(engine) as session:
        for customer in customers:
            example.sign_up(session, customer)
            example.sign_up(session, customer)
        example.save(session, article(acme, "house", "Bicycles", BIKES))
        example.save(session, article(acme, "staff", "Leave", LEAVE))
        example.save(session, article(globex, "house", "Bikes", "Bicycles belong in the yard."))
        with pytest.raises(InvalidState):
            example.wait(session, acme)
        session.rollback()
        with pytest.raises(NotFound):
            example.wait(session, acme)
        session.rollback()

    with Session(engine) as session, session.begin():
        for customer in customers:
            example.sign_up(session, customer)
        example.save(session, article(acme, "house", "Bicycles", BIKES))
        example.save(session, article(acme, "staff", "Leave", LEAVE))
        example.save(session, article(globex, "house", "Bikes", "Bicycles belong in the yard."))
    with Session(engine) as session, session.begin():
        example.wait(session, acme)
        example.wait(session, globex)

    with Session(engine) as session:
        found = example.search(session, acme, "Where do I leave my bike?")
        assert found[0][0].title == "Bicycles"
        assert found[0][1] > 0
        assert [one.title for one, _ in example.search(session, acme, "bike", section="staff")] == ["Leave"]
        assert [one.title for one, _ in example.search(session, globex, "bike")] == ["Bikes"]
        # A row and its document are undone together.
        example.save(session, article(acme, "house", "Undone", "Nothing."))
        session.rollback()
        assert session.scalar(select(func.count()).where(example.Article.title == "Undone")) == 0
        one = session.scalars(select(example.Article).where(example.Article.title == "Leave")).one()
        example.remove(session, one)
        session.commit()
        assert [one.title for one, _ in example.search(session, acme, "leave")] == ["Bicycles"]
    example.Base.metadata.drop_all(engine)
    engine.dispose()
    sys.modules.pop("articles")


def test_django(monkeypatch, conninfo, customers):
    where = conninfo_to_dict(conninfo)
    for variable, key in [("PGHOST", "host"), ("PGPORT", "port"), ("PGUSER", "user"), ("PGDATABASE", "dbname")]:
        monkeypatch.setenv(variable, where[key])
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "project.settings")
    monkeypatch.syspath_prepend(EXAMPLES / "django")
    assert os.environ["DJANGO_SETTINGS_MODULE"] == "project.settings"

    import django
    from django.core.management import call_command
    from django.db import connection, transaction
    from django.test import Client

    django.setup()
    call_command("migrate", verbosity=0)
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    models = importlib.import_module("articles.models")
    acme, globex = customers
    for customer in customers:
        models.knowledge_base(customer).create(embedder="static")
    bikes = models.Article.objects.create(customer=acme, section="house", title="Bicycles", body=BIKES)
    models.Article.objects.create(customer=acme, section="staff", title="Leave", body=LEAVE)
    models.Article.objects.create(customer=globex, section="house", title="Bikes", body="Bicycles belong in the yard.")
    for customer in customers:
        models.knowledge_base(customer).wait(60)

    found = models.Article.search(acme, "Where do I leave my bike?")
    assert found[0][0] == bikes
    assert found[0][1].metadata == {"section": "house"}
    assert [article.title for article, _ in models.Article.search(acme, "bike", "staff")] == ["Leave"]

    client = Client()
    results = client.get("/globex/search", {"q": "bike"}).json()["results"]
    assert [(row["title"], row["passage"]) for row in results] == [("Bikes", "Bicycles belong in the yard.")]
    assert client.get("/nobody/search", {"q": "bike"}).status_code == 404
    assert client.get("/globex/search").status_code == 400

    # The document is undone with the row, also where kb's statement is the first of the transaction.
    @transaction.atomic
    def fail():
        models.knowledge_base(acme).put("first", "text")
        models.Article.objects.create(customer=acme, section="x", title="Undone", body="text")
        models.knowledge_base(acme).put("", "an external_id that is refused")

    with pytest.raises(InvalidArgument):
        fail()
    assert models.knowledge_base(acme).get(["first"]) == []
    assert not models.Article.objects.filter(title="Undone").exists()

    bikes.body = "Bicycles belong in the garage."
    bikes.save()
    models.knowledge_base(acme).wait(60)
    assert models.Article.search(acme, "bicycles")[0][1].content == "Bicycles belong in the garage."
    bikes.delete()
    assert [article.title for article, _ in models.Article.search(acme, "bicycles")] == ["Leave"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('kb.tenant', true)")
        assert cursor.fetchone() in {("",), (None,)}
        cursor.execute("DROP TABLE articles_article, django_migrations")
    connection.close()


def test_the_lock_of_the_node_example_names_no_other_registry():
    lock = json.loads((EXAMPLES / "node" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert all(
        package.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/")
        for package in packages.values()
    )
    manifest = json.loads((EXAMPLES / "node" / "package.json").read_text())
    assert lock["packages"][""]["dependencies"] == manifest["dependencies"]


def test_the_examples_have_no_statement_glued_from_values(conninfo):
    # A customer whose name would end a literal sees nothing and harms nothing.
    evil = "x'); DROP TABLE evil; --"
    with psycopg.connect(conninfo) as connection:
        connection.execute("CREATE TABLE evil ()")
        connection.commit()
        with KnowledgeBase(evil, make_conninfo(conninfo), tenant=evil) as kb:
            kb.create(embedder="static", description=evil, metadata={evil: evil})
            kb.put(evil, evil, metadata={evil: evil})
            kb.wait(60)
            assert kb.query(evil, filter={evil: evil})[0].external_id == evil
            kb.drop()
        connection.execute("DROP TABLE evil")
