"""The pages hold together: links lead somewhere, code runs as printed, nothing is named that is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of, page, without_code
from tests.support.launch import run, store_of
from tests.support.pace import patient

BLOCKS = [block for path in PAGES for block in blocks(path)]
PYTHON = [block for block in BLOCKS if block.info[:1] == ("python",)]
RUNNABLE = [block for block in PYTHON if "run" in block.info]
NO_RECORDS = "import logging\nlogging.getLogger('rota.jobs').addHandler(logging.NullHandler())\n"
REGISTRIES = re.compile(r"pypi\.|pythonhosted|npmjs|registry\.|crates\.io|conda\.|index-url", re.IGNORECASE)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_are_there(path):
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        where, _, anchor = target.partition("#")
        if "://" in target:
            missing.append(f"{target}: a link out of the repository may rot")
            continue
        there = (path.parent / where).resolve() if where else path
        inside = there.exists() and there.is_relative_to(ROOT)
        if not inside or (anchor and anchor not in _anchors(there)):
            missing.append(target)
    assert not missing


def _anchors(path: Path) -> set[str]:
    text = path.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def test_every_page_can_be_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        path = left.pop()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        links = re.findall(r"\]\(([^)\s#]+)", without_code(path.read_text()))
        left += [(path.parent / link).resolve() for link in links if "://" not in link and (path.parent / link).exists()]
    assert {path for path in PAGES if path.is_relative_to(ROOT / "docs")} <= seen


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_page_names_a_package_registry(path):
    assert not REGISTRIES.search(path.read_text())


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_in_the_docs_is_python(block):
    compile(block.text, block.name, "exec")


@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: block.name)
def test_python_marked_run_in_the_docs_runs_as_printed(block, tmp_path, monkeypatch):
    script = tmp_path / "printed.py"
    script.write_text(block.text)
    monkeypatch.delenv("ROTA_STORE", raising=False)
    # A failing job is a log record, which a program that has not set up logging writes to stderr. Nothing else may be there.
    done = run(script, folder=tmp_path, timeout=patient(50), imports=(store_of("rota.db"),), strict=True, before=NO_RECORDS)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    if (expected := _output_after(block)) is not None:
        assert done.stdout == expected


def _output_after(block):
    """Return the text block marked `output` that follows, if there is one."""
    following = BLOCKS[BLOCKS.index(block) + 1 : BLOCKS.index(block) + 2]
    return following[0].text if following and following[0].info == ("text", "output") and following[0].page == block.page else None


def test_the_docs_have_code_that_runs():
    assert len(RUNNABLE) >= 5


def test_the_readme_shows_the_quickstart_as_it_is():
    shown = [block.text for block in blocks(ROOT / "README.md") if block.info == ("python", "run")]
    assert shown == [(ROOT / "examples" / "quickstart.py").read_text()]


def test_delivery_is_promised_in_the_same_words_everywhere():
    words = "At most once per job; at least once per chain unless it is cancelled, expires or has max_retries 0."
    assert words in page("README.md")
    assert words in page("docs/internals/failure-model.md")


@pytest.mark.parametrize("name", ["docs/internals/failure-model.md", "docs/operations/security.md"])
def test_tests_that_a_page_names_are_there(name):
    named = set(re.findall(r"`(test_\w+)`", page(name)))
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named
    assert named - there == set()


def test_the_store_contract_names_every_verb_of_the_port():
    from rota.ports.store import Store

    ports = [port for port in Store.__mro__ if port.__module__.startswith("rota.")]
    verbs = {name for port in ports for name in vars(port) if not name.startswith("_") and callable(getattr(port, name))}
    assert verbs == set(re.findall(r"`(\w+)`", "".join(_family_rows())))


def _family_rows():
    section = page("docs/internals/store-contract.md").partition("## Families of verbs")[2].partition("\n## ")[0]
    return [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_paths_named_in_the_docs_are_there(path):
    named = re.findall(r"`((?:tests|src|bench|examples|docs)/[\w./-]+\.\w+)`", path.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_page_and_no_message_names_a_package_that_is_not_published():
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/rota/**/*.py"), *ROOT.glob("src/rota/**/*.html")]:
        assert not re.search(r"pip install '?rota\b|\brota\[", path.read_text()), path


def test_the_readme_lists_every_extra():
    install = page("README.md").partition("## Install")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", install, re.MULTILINE))
    assert named == set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
