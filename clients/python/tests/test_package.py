"""What is published: its version, its types, its statements."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path

import pytest

import kb_client

ROOT = Path(__file__).parents[3]


def test_the_version_is_that_of_the_workspace():
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert kb_client.__version__ == version("kb-client") == workspace["version"]
    about = metadata("kb-client")
    assert about["License-Expression"] == workspace["license"]
    assert (ROOT / "clients/python/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert about["Description"] == (ROOT / "clients/python/README.md").read_text()


def test_the_types_are_published():
    assert files("kb_client").joinpath("py.typed").is_file()


def test_every_sqlstate_of_the_page_on_errors_has_an_exception_of_its_own():
    page = (ROOT / "docs/reference/errors.md").read_text()
    states = set(re.findall(r"^\| ([0-9A-Z]{5}) \|", page, re.MULTILINE))
    assert len(states) > 15
    # A bug in kb is no special case for a program.
    assert states - set(kb_client.errors._BY_SQLSTATE) == {"XX000"}


def test_all_that_is_exported_is_there_and_documented():
    for name in kb_client.__all__:
        exported = getattr(kb_client, name)
        assert exported.__doc__ or name in {"Format", "Mode"}, name


@pytest.mark.parametrize(("name", "needs"), [("langchain", "langchain_core"), ("llama_index", "llama_index")])
def test_an_adapter_without_its_framework_says_what_to_install(name, needs):
    program = f"import sys; sys.modules[{needs!r}] = None; import kb_client; import kb_client.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'kb-client[{name.replace('_', '-')}]'" in done.stderr


def test_the_locked_requirements_name_no_registry():
    lock = (ROOT / "clients/python/requirements-test.txt").read_text()
    assert "://" not in lock
    assert "--index" not in lock
    pins = re.findall(r"^[a-z0-9][^ ]*==.*\\$", lock, re.MULTILINE)
    assert len(pins) > 50
    assert lock.count("--hash=sha256:") > len(pins)
