"""Files: real ones of many formats through a source, runs over files and pages that find nothing new, a PDF of 200 MB."""

import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from report import Report
from server import Sampler, Server, memory_kb

FILES = 1_000
MB_A_MINUTE = 50
UNCHANGED = 10_000
UNCHANGED_SECONDS = 3
WORKER_MB = 300
EXTRACT_MB = 512
PDF_PAGES = 400
IMAGE_BYTES = 500_000


def run(server: Server, report: Report) -> None:
    folder = Path(server.options.files)
    real = sorted(path for path in Path(server.options.documents).rglob("*") if path.is_file()) if server.options.documents else []
    if real:
        read_real(server, report, folder / "real", real[:FILES])
    read_unchanged(server, report, folder / "unchanged")
    read_unchanged_pages(server, report)
    read_large(server, report)


def read_real(server: Server, report: Report, folder: Path, real: list[Path]) -> None:
    folder.mkdir()
    for number, path in enumerate(real):
        shutil.copyfile(path, folder / f"{number}-{path.name}")
    size = sum(path.stat().st_size for path in real)
    connection = server.fresh("bench_files")
    connection.execute("SELECT kb.create_knowledge_base('files', embedder => 'hash')")
    connection.execute("""SELECT kb.create_source('files', 'real', 'files', '{"path": "real/*"}')""")
    with Sampler(server, "kb worker") as sampler, Programs(server) as programs:
        begun = time.monotonic()
        run_no = connection.execute("SELECT kb.ingest('files')").fetchone()[0]
        connection.execute("SELECT kb.wait('files', 550)")
        took = time.monotonic() - begun
    scanned = connection.execute("SELECT scanned FROM kb.runs WHERE run_no = %s", [run_no]).fetchone()[0]
    ready, chunks = connection.execute("SELECT ready, chunks FROM kb.status WHERE kb_id = 'files'").fetchone()
    if scanned != len(real) or ready < 0.9 * len(real):
        raise AssertionError(f"{scanned} of {len(real)} files scanned, {ready} documents ready")
    rate = size / 1e6 / took * 60
    formats = len({path.suffix for path in real})
    report.add(
        f"{len(real):,} real files of {formats} formats, {size / 1e6:.0f} MB, from kb.ingest to ready",
        f"{took:.1f} s, {rate:.0f} MB a minute",
        "",
        f"{programs.seconds:.1f} s of processor time in kb-extract",
        f">= {MB_A_MINUTE} MB a minute",
        rate >= MB_A_MINUTE,
    )
    own, high = (sampler.peak[field] / 1024 for field in ("RssAnon", "VmHWM"))
    report.add("  the worker, at its most", f"{own:.0f} MB of its own", "", f"{high:.0f} MB with shared buffers and code",
               f"< {WORKER_MB} MB", own < WORKER_MB)
    report.add("  kb-extract, at its most", f"{programs.peak / 1024:.0f} MB", "", "", f"< {EXTRACT_MB} MB", programs.peak / 1024 < EXTRACT_MB)
    # Errors name the document first.
    reasons = connection.execute(
        "SELECT string_agg(format('%s: %s', n, left(reason, 60)), '; ' ORDER BY n DESC) FROM (SELECT reason, count(*) AS n"
        " FROM (SELECT regexp_replace(error, '^document \"[^\"]*\": ', '') AS reason FROM kb.failures) AS e GROUP BY reason) AS f"
    ).fetchone()[0]
    report.note(f"files: {ready:,} documents, {chunks:,} chunks; failed are {reasons or 'none'}")
    server.drop(connection)


def read_unchanged(server: Server, report: Report, folder: Path) -> None:
    folder.mkdir()
    for number in range(UNCHANGED):
        (folder / f"{number}.txt").write_text(f"File {number} says what no other file says: {number * 7919}.\n")
    connection = server.fresh("bench_unchanged")
    connection.execute("SELECT kb.create_knowledge_base('files', embedder => 'hash')")
    connection.execute("""SELECT kb.create_source('files', 'same', 'files', '{"path": "unchanged/*"}')""")
    first = ingest(connection)
    second = ingest(connection)
    scanned, skipped = connection.execute("SELECT scanned, skipped FROM kb.runs ORDER BY run_no DESC LIMIT 1").fetchone()
    if (scanned, skipped) != (UNCHANGED, UNCHANGED):
        raise AssertionError(f"{scanned} files scanned, {skipped} skipped, not {UNCHANGED}")
    report.add(
        f"a second run over {UNCHANGED:,} files that have not changed",
        f"{second:.2f} s",
        "",
        f"the first run {first:.1f} s",
        f"<= {UNCHANGED_SECONDS} s",
        second <= UNCHANGED_SECONDS,
    )
    server.drop(connection)


class Site(BaseHTTPRequestHandler):
    """A sitemap, and pages that have not changed if they are asked for by their ETag."""

    protocol_version = "HTTP/1.1"
    # A reply is one packet: its body does not wait for the acknowledgement of its headers.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    # What was asked: True if by the ETag.
    asked: list[bool] = []

    def do_GET(self):
        if self.path == "/sitemap.xml":
            address = f"http://{self.headers['Host']}"
            pages = "".join(f"<url><loc>{address}/{number}.txt</loc></url>" for number in range(UNCHANGED))
            self.reply(200, f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{pages}</urlset>', "application/xml")
            return
        is_known = self.headers["If-None-Match"] == '"1"'
        self.asked.append(is_known)
        if is_known:
            self.reply(304, "", None)
        else:
            self.reply(200, f"Page {self.path} says what no other page says.", "text/plain")

    def reply(self, status: int, body: str, content_type: str | None):
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        self.send_header("ETag", '"1"')
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def read_unchanged_pages(server: Server, report: Report) -> None:
    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    connection = server.fresh("bench_pages")
    connection.execute("SELECT kb.create_knowledge_base('files', embedder => 'hash')")
    config = f'{{"sitemap": "http://127.0.0.1:{site.server_port}/sitemap.xml", "robots": false, "rate": 1000}}'
    connection.execute("SELECT kb.create_source('files', 'pages', 'url', %s::jsonb)", [config])
    first = ingest(connection)
    Site.asked.clear()
    second = ingest(connection)
    scanned, skipped = connection.execute("SELECT scanned, skipped FROM kb.runs ORDER BY run_no DESC LIMIT 1").fetchone()
    if scanned != UNCHANGED:
        raise AssertionError(f"{scanned} pages scanned, not {UNCHANGED}")
    report.add(
        f"a second run over {UNCHANGED:,} pages that have not changed",
        f"{len(Site.asked):,} requests, {sum(Site.asked):,} by ETag; {skipped:,} skipped; {second:.1f} s",
        "",
        f"the first run {first:.1f} s, at a rate of 1,000 a second",
        "one each by ETag, none embedded",
        len(Site.asked) == sum(Site.asked) == skipped == UNCHANGED,
    )
    site.shutdown()
    server.drop(connection)


def ingest(connection) -> float:
    begun = time.monotonic()
    connection.execute("SELECT kb.ingest('files')")
    connection.execute("SELECT kb.wait('files', 550)")
    return time.monotonic() - begun


def read_large(server: Server, report: Report) -> None:
    """One kb-extract, asked as the worker asks it: frames of MessagePack."""
    file = large_pdf()
    with tempfile.TemporaryFile() as errors:
        program = subprocess.Popen([server.options.extract, str(4 << 30)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        answer(program)
        request = b"\x82" + text("file") + b"\x84" + text("name") + text("large.pdf") + text("content_type") + b"\xc0"
        request += text("bytes") + b"\xc6" + struct.pack(">I", len(file)) + file
        request += text("max_text") + b"\xce" + struct.pack(">I", 10_000_000) + text("seconds") + b"\xcd" + struct.pack(">H", 300)
        begun = time.monotonic()
        program.stdin.write(struct.pack("<I", len(request)) + request)
        program.stdin.flush()
        found = answer(program)
        took = time.monotonic() - begun
        peak = memory_kb(program.pid, "VmHWM") / 1024
        program.stdin.close()
        program.wait()
    if f"This is page {PDF_PAGES}".encode() not in found:
        raise AssertionError(f"kb-extract does not find the last page: {found[:200]}")
    report.add(f"kb-extract on a PDF of {len(file) / 1e6:.0f} MB, at its most", f"{peak:.0f} MB", "", f"{took:.1f} s",
               f"< {EXTRACT_MB} MB", peak < EXTRACT_MB)


def text(value: str) -> bytes:
    return bytes([0xA0 + len(value)]) + value.encode()


def answer(program: subprocess.Popen) -> bytes:
    length = program.stdout.read(4)
    if len(length) < 4:
        raise AssertionError(f"kb-extract ended with {program.wait()}")
    return program.stdout.read(struct.unpack("<I", length)[0])


def large_pdf() -> bytes:
    """Pages of a line of text and an image that cannot be compressed."""
    image = os.urandom(IMAGE_BYTES)
    kids = " ".join(f"{4 + 3 * page} 0 R" for page in range(PDF_PAGES))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {PDF_PAGES}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for page in range(PDF_PAGES):
        content = f"BT /F1 12 Tf 72 720 Td (This is page {page + 1} of many.) Tj ET q 500 0 0 500 50 50 cm /I Do Q".encode()
        objects += [
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {5 + 3 * page} 0 R/Resources"
            f"<</Font<</F1 3 0 R>>/XObject<</I {6 + 3 * page} 0 R>>>>>>".encode(),
            b"<</Length %d>>stream\n%b\nendstream" % (len(content), content),
            b"<</Type/XObject/Subtype/Image/Width 1000/Height 500/ColorSpace/DeviceGray/BitsPerComponent 8/Length %d>>stream\n%b\nendstream"
            % (len(image), image),
        ]
    file, places = bytearray(b"%PDF-1.7\n"), []
    for number, value in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, value)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        file += b"%010d 00000 n \n" % place
    file += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(file)


class Programs(Sampler):
    """The same of kb-extract, which workers start: its peak, and the processor time of all of them."""

    def __init__(self, server: Server):
        super().__init__(server, "kb worker")
        self.peak = 0
        self.used = {}

    @property
    def seconds(self) -> float:
        return sum(self.used.values())

    def run(self) -> None:
        while not self.over.is_set():
            for worker in self.server.processes(self.title):
                try:
                    # A thread starts the program.
                    children = [path.read_text().split() for path in Path(f"/proc/{worker}/task").glob("*/children")]
                    for pid in map(int, sum(children, [])):
                        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                        self.used[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                        self.peak = max(self.peak, memory_kb(pid, "VmHWM"))
                except OSError:
                    continue
            time.sleep(0.02)
