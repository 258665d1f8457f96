"""The recipe of the guide, with the real structlog: each line that a handler logs says which job it belongs to."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.docs.pages import ROOT, blocks
from tests.support.pace import patient
from tests.support.prepared import prepare

HANDLERS = """
import sys

log = structlog.get_logger()

def deep():
    log.info("looked", template_seen=True)

def works():
    deep()

async def works_async():
    deep()

for place in ("inline", "thread", "process"):
    rota.job(works, name=place, executor=place)
rota.job(works_async, name="async")

if __name__ == "__main__":
    jobs = {{name: rota.enqueue(name).id for name in ("inline", "thread", "process", "async")}}
    with rota.running(concurrency=2):
        for job in jobs.values():
            rota.wait(job, timeout={wait})
    log.info("outside")
    # What a handler process prints is in the log of its run.
    print(rota.jobs.log(jobs["process"]))
    print("jobs", *jobs.values())
    rota.close()
"""


def test_each_line_has_job_template_and_attempt_in_all_four_executors(tmp_path):
    (recipe,) = [block.text for block in blocks(ROOT / "docs" / "guide" / "hooks.md") if "import structlog" in block.text]
    script = tmp_path / "script.py"
    script.write_text(recipe + HANDLERS.format(wait=patient(30)))
    environment = os.environ | {"ROTA_STORE": str(prepare(tmp_path / "rota.db"))}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if "{" in line]
    jobs = done.stdout.splitlines()[-1].split()[1:]
    looked = {line["template"]: (line["job"], line["attempt"]) for line in lines if line["event"] == "looked"}
    assert looked == {name: (job, 1) for name, job in zip(("inline", "thread", "process", "async"), jobs, strict=True)}
    assert [line for line in lines if line["event"] == "outside"] == [{"event": "outside"}]
