"""Articles of several customers in a table, and in kb for searching: SQLAlchemy 2 with psycopg 3.

Each customer is a tenant of kb with a knowledge base `articles`. An article and its document are written in one
transaction: both are there or neither is.
"""

from __future__ import annotations

from typing import Any

from kb_client import KnowledgeBase
from sqlalchemy import String, cast, create_engine, delete, func, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(index=True)
    section: Mapped[str]
    title: Mapped[str]
    body: Mapped[str]


def connect(host: str, port: int, user: str, database: str) -> Engine:
    return create_engine(f"postgresql+psycopg://{user}@/{database}", connect_args={"host": host, "port": port})


def articles(session: Session, customer: str) -> KnowledgeBase:
    """The knowledge base of a customer, on the connection and in the transaction of a session."""
    connection = session.connection().connection.driver_connection
    return KnowledgeBase("articles", connection, tenant=customer)  # type: ignore[arg-type]


def sign_up(session: Session, customer: str) -> None:
    articles(session, customer).create(embedder="static", exist_ok=True)


def save(session: Session, article: Article) -> None:
    """Write an article. The caller commits."""
    session.add(article)
    session.flush()
    articles(session, article.customer).put(
        str(article.id), article.body, title=article.title, metadata={"section": article.section}
    )


def remove(session: Session, article: Article) -> None:
    session.execute(delete(Article).where(Article.id == article.id))
    articles(session, article.customer).delete(str(article.id))


def wait(session: Session, customer: str) -> None:
    """Wait until what is committed can be found. Only tests and scripts need this; an application goes on."""
    articles(session, customer).wait(60)


def search(session: Session, customer: str, question: str, **filter: Any) -> list[tuple[Article, float]]:
    """The articles that answer a question, with their scores, in one statement: kb's rows joined with ours."""
    session.execute(select(func.set_config("kb.tenant", customer, True)))
    # One row for each article, though several of its passages may match.
    found = func.kb.query(
        "articles", question, 5, None, cast(literal(filter or None, JSONB(none_as_null=True)), JSONB), None, None,
        cast({"per_document": 1}, JSONB),
    ).table_valued("rank", "external_id", "score", name="found")
    statement = (
        select(Article, found.c.score)
        .join(found, found.c.external_id == cast(Article.id, String))
        .where(Article.customer == customer)
        .order_by(found.c.rank)
    )
    return [(article, score) for article, score in session.execute(statement)]
