"""The Python of the pages does what it shows: each page from its top, in one namespace; what a block prints comes next."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from kb_client import KnowledgeBase, NotFound

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "clients/python/README.md", ROOT / "docs/how-to/python.md"]
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page):
    """The number of the line, the program and the output of each example."""
    text = page.read_text()
    blocks = [
        (text.count("\n", 0, block.start()) + 1, block["language"], block["text"]) for block in BLOCK.finditer(text)
    ]
    for n, (line, language, program) in enumerate(blocks):
        if language == "python":
            following = blocks[n + 1] if n + 1 < len(blocks) else (0, "none", "")
            yield line, program, following[2] if following[1] == "" else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_happens(monkeypatch, conninfo, page):
    where = conninfo_to_dict(conninfo)
    for variable, key in [("PGHOST", "host"), ("PGPORT", "port"), ("PGUSER", "user")]:
        monkeypatch.setenv(variable, where[key])
    # What a page that failed has left.
    with contextlib.suppress(NotFound), KnowledgeBase("handbook", conninfo) as kb:
        kb.drop()
    shown = list(examples(page))
    assert shown
    namespace = {"__name__": page.stem}
    for line, program, output in shown:
        program = program.replace("dbname=app", f"dbname={where['dbname']}")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + program, str(page), "exec"), namespace)
        assert printed.getvalue() == output, f"{page.name}:{line}"


def test_the_pages_show_the_examples_as_they_are():
    page = (ROOT / "docs/how-to/python.md").read_text()

    def plain(text):
        return re.sub(r'"""(.*?)"""|\s', "", text)

    examples = plain("\n".join(path.read_text() for path in (ROOT / "clients/examples").rglob("*.py")))
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for line in "".join(blocks).splitlines():
        # The page leaves out comments and what does not belong to the point.
        assert plain(line.split(", title=")[0]) in examples, line
    for link in re.findall(r"\]\((\.\./\.\./clients/[^)]*)\)", page):
        assert (ROOT / "docs/how-to" / link).exists(), link
