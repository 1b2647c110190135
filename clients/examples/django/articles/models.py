"""Articles of several customers, each of which is a tenant of kb with a knowledge base `articles`."""

from __future__ import annotations

from django.db import connection, models, transaction
from kb_client import Hit, KnowledgeBase


def knowledge_base(customer: str) -> KnowledgeBase:
    """The knowledge base of a customer, on Django's connection and in its transaction."""
    connection.ensure_connection()
    return KnowledgeBase("articles", connection.connection, tenant=customer)


class Article(models.Model):
    customer = models.TextField(db_index=True)
    section = models.TextField()
    title = models.TextField()
    body = models.TextField()

    def save(self, *args, **kwargs) -> None:
        """Write the row and its document: both or neither."""
        with transaction.atomic():
            super().save(*args, **kwargs)
            knowledge_base(self.customer).put(
                str(self.pk), self.body, title=self.title, metadata={"section": self.section}
            )

    def delete(self, *args, **kwargs):
        with transaction.atomic():
            knowledge_base(self.customer).delete(str(self.pk))
            return super().delete(*args, **kwargs)

    @classmethod
    def search(cls, customer: str, question: str, section: str | None = None) -> list[tuple[Article, Hit]]:
        """The articles that answer a question, best first, each with its passage."""
        hits = knowledge_base(customer).query(
            question,
            top_k=5,
            filter=None if section is None else {"section": section},
            options={"per_document": 1},
        )
        rows = cls.objects.filter(customer=customer).in_bulk([int(hit.external_id) for hit in hits])
        return [(rows[int(hit.external_id)], hit) for hit in hits if int(hit.external_id) in rows]
