"""A server with kb is named by KB_TEST_CONNINFO (tools/test-clients.sh makes one): a superuser's connection."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kb_client import AsyncKnowledgeBase, KnowledgeBase

_numbers = count(1)

# In an application of these roles, as an application has it: writers that may act for any tenant.
ROLE = "kb_client_writer"


@pytest.fixture(scope="session")
def superuser() -> str:
    return os.environ["KB_TEST_CONNINFO"]


@pytest.fixture(scope="session")
def conninfo(superuser):
    with psycopg.connect(superuser, autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [ROLE]).rowcount:
            connection.execute(f"DROP OWNED BY {ROLE}")
            connection.execute(f"DROP ROLE {ROLE}")
        connection.execute(f"CREATE ROLE {ROLE} LOGIN")
        connection.execute(f"GRANT kb_writer TO {ROLE}")
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {ROLE}")
    return make_conninfo(superuser, user=ROLE, application_name="kb-client tests")


@pytest.fixture(scope="session")
def admin(superuser):
    with psycopg.connect(superuser, autocommit=True) as connection:
        yield connection


@pytest.fixture
def name():
    """The id of a knowledge base that no other test has."""
    return f"kb/{next(_numbers)}"


@pytest.fixture
def kb(conninfo, name):
    with KnowledgeBase(name, conninfo) as kb:
        yield kb.create(embedder="static")
        kb.drop()


@pytest.fixture
async def akb(conninfo, name):
    async with AsyncKnowledgeBase(name, conninfo) as akb:
        yield await akb.create(embedder="static")
        await akb.drop()


def pytest_itemcollected(item):
    """Mark the tests of a class with `expected_to_fail` that use its fixture, which is where they fail."""
    marks = getattr(item.cls, "expected_to_fail", {}) if item.cls else {}
    for fixture, reason in marks.items():
        if fixture in item.fixturenames:
            item.add_marker(pytest.mark.xfail(strict=True, raises=NotImplementedError, reason=reason))


def pytest_terminal_summary(terminalreporter):
    """Say how many tests are expected to fail, and why, in a line for each reason."""
    reasons = Counter(report.wasxfail for report in terminalreporter.stats.get("xfailed", []))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"{number} expected to fail: {reason}")


@dataclass
class ChatModel:
    """A server that speaks as OpenAI's chat models do: it says what it is told, and keeps what it was asked."""

    says: str = "Thirty days [1]."
    asked: list[dict] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def chat_model():
    model = ChatModel()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/chat/completions"):
                self.send_error(400, "this server makes no embeddings")
                return
            model.asked.append(asked)
            choice = {"index": 0, "message": {"role": "assistant", "content": model.says}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
            body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield model
        server.shutdown()
        thread.join()
