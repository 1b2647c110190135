"""The scratch cluster as a client sees it, and its processes as /proc shows them."""

import os
import re
import subprocess
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.json import Jsonb

STATEMENT_TIMEOUT = "600s"


class Vector(bytes):
    """A vector in pgvector's binary form."""


class Server:
    def __init__(self, options):
        self.options = options
        self.postmaster = options.postmaster
        self.manual = options.manual
        self.cranfield = Path(options.cranfield) if options.cranfield else None
        # What one benchmark leaves to the next, by name; see ingest.bench_database, model.batches and model.compare.
        self.shared = {}

    def connect(self, database: str = "postgres", prepares: bool = False) -> psycopg.Connection:
        """A connection whose statements are planned each time, or where it `prepares` those that ask for it once in the server."""
        connection = psycopg.connect(
            host=self.options.host,
            port=self.options.port,
            user="postgres",
            dbname=database,
            autocommit=True,
            options=f"-c statement_timeout={STATEMENT_TIMEOUT} -c kb.gateway_timeout=300s",
        )
        # None: no statement is prepared, whatever it asks for.
        connection.prepare_threshold = 5 if prepares else None
        return connection

    def fresh(self, database: str) -> psycopg.Connection:
        """A new database with the extension."""
        with self.connect() as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            admin.execute(f"CREATE DATABASE {database}")
        connection = self.connect(database)
        connection.execute("SET client_min_messages = warning")
        connection.execute("CREATE EXTENSION kb CASCADE")
        adapt_vectors(connection)
        return connection

    def drop(self, connection: psycopg.Connection) -> None:
        """Closes the connection, and drops its database."""
        database = connection.info.dbname
        connection.close()
        with self.connect() as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def processes(self, title: str) -> list[int]:
        """Children of the postmaster whose title begins like this."""
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children").read_text().split()
        return [int(pid) for pid in children if command_line(int(pid)).startswith(f"postgres: {title}")]

    def await_indexes(self, connection, seconds: float, kb_id: str = "bench") -> None:
        """Until the indexer of this database has left for good: it also merges segments when nothing was written for a while."""
        begun = time.monotonic()
        left = None
        while left is None or time.monotonic() - left < 3:
            state = "SELECT segments = 0 OR unindexed >= 1000 FROM kb.status WHERE kb_id = %s"
            is_working = self.processes("kb indexer") or connection.execute(state, [kb_id]).fetchone()[0]
            left = None if is_working else left or time.monotonic()
            if time.monotonic() - begun > seconds:
                raise TimeoutError(f"segments are still built or merged after {seconds:.0f} s")
            time.sleep(0.2)

    def describe(self) -> list[str]:
        with self.connect() as connection:
            version = connection.execute("SHOW server_version").fetchone()[0]
            settings = connection.execute(
                "SELECT string_agg(name || ' ' || current_setting(name), ', ' ORDER BY name) FROM pg_settings WHERE name IN"
                " ('autovacuum', 'shared_buffers', 'maintenance_work_mem', 'max_parallel_maintenance_workers', 'max_wal_size', 'min_wal_size')"
            ).fetchone()[0]
            pgvector = connection.execute(
                "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone()[0]
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) // 1024
        git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        return [
            f"{os.cpu_count()} cores of {cpu[1] if cpu else 'unknown'}, {memory} MB; load {os.getloadavg()[0]:.1f} at the start",
            f"PostgreSQL {version}, pgvector {pgvector}, {settings}",
            f"kb {commit or 'of no checkout'}, {self.options.profile} build, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        ]


def put_documents(connection: psycopg.Connection, kb_id: str, documents: list, batch: int = 1_000, seconds: int = 0) -> None:
    """Puts documents (dicts, or Jsonb that is made already), and waits for so many seconds at the most until they are ready."""
    for i in range(0, len(documents), batch):
        made = [document if isinstance(document, Jsonb) else Jsonb(document) for document in documents[i : i + batch]]
        connection.execute("SELECT count(*) FROM kb.put_documents(%s, %b)", [kb_id, made])
    if seconds:
        connection.execute("SELECT kb.wait(%s, %s)", [kb_id, seconds])


def adapt_vectors(connection: psycopg.Connection) -> None:
    oid = connection.execute("SELECT 'vector'::regtype::oid").fetchone()[0]
    attributes = {"format": Format.BINARY, "oid": int(oid), "dump": lambda self, obj: bytes(obj)}
    connection.adapters.register_dumper(Vector, type("VectorDumper", (Dumper,), attributes))


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def memory_kb(pid: int, field: str) -> int:
    """A field of /proc/PID/status (VmRSS, VmHWM, RssAnon) or of smaps_rollup (Pss, Private_Dirty)."""
    file = "status" if field.startswith(("Vm", "Rss")) else "smaps_rollup"
    try:
        found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Sampler(threading.Thread):
    """Looks at processes of a title every 50 ms and keeps the largest figures."""

    def __init__(self, server: Server, title: str):
        super().__init__(daemon=True)
        self.server, self.title = server, title
        self.others = set(server.processes(title))
        self.peak = {"RssAnon": 0, "VmRSS": 0, "VmHWM": 0}
        self.samples = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            for pid in set(self.server.processes(self.title)) - self.others:
                self.samples += 1
                for field in self.peak:
                    self.peak[field] = max(self.peak[field], memory_kb(pid, field))
            time.sleep(0.05)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
