"""Coding agents, unchanged: each runs a tool of its own that the model calls, and is billed for it.

First argument: the folder of their modules; second: an empty one to work in.
"""

import decimal
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

URL, KEY = os.environ["SDKS_URL"], os.environ["SDKS_KEY"]
MODULES, WORK = (pathlib.Path(path).resolve() for path in sys.argv[1:])
# Whatever the agents know of the user's own accounts stays out of this.
OWN = {"PATH": os.environ["PATH"], "HOME": str(WORK / "home"), "KEY": KEY}
PAGE = pathlib.Path("docs/sdks.md").read_text().replace("http://127.0.0.1:8080", URL)
CODEX = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL).group(1)


def get(path):
    request = urllib.request.Request(URL + path, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def run(*command, **more):
    done = subprocess.run(
        command, cwd=WORK / "cwd", env=OWN | more, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def claude(model, tool):
    return run(
        str(MODULES / "node_modules/.bin/claude"),
        "-p",
        f"Look at it [[tool:{tool}]]",
        ANTHROPIC_BASE_URL=f"{URL}/anthropic",
        ANTHROPIC_AUTH_TOKEN=KEY,
        ANTHROPIC_MODEL=model,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


def codex(model, tool):
    # Its own sandbox for commands is no matter of this service, and not to be had everywhere.
    command = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return run(str(MODULES / "node_modules/.bin/codex"), *command, "-m", model, f"Look at it [[tool:{tool}]]")


def check_bills(surface, before):
    new = [one for one in get("/v1/generate/history?per_page=20")["data"] if one["uuid"] not in before]
    assert len(new) == 2, new
    for one in new:
        assert (one["surface"], one["status"]) == (surface, "completed"), one
        record = get(f"/v1/generate/{one['uuid']}")
        prices, usage = record["metadata"]["pricing"], record["usage"]
        cost = decimal.Decimal(0)
        for name in ("input", "output"):
            cost += usage[f"{name}_tokens"] * decimal.Decimal(prices[f"{name}_per_million"])
        assert decimal.Decimal(record["credits"]["charged"]) == cost / 1_000_000, record


(WORK / "cwd").mkdir(parents=True)
(WORK / "home/.codex").mkdir(parents=True)
(WORK / "home/.codex/config.toml").write_text(CODEX)
# What the sandbox and the stand-in give a tool that reads a file.
for name in ("sandbox", "vendor"):
    (WORK / "cwd" / name).write_text("A river has two banks.\n")
ran = 0
for agent, model, tool, surface, said in (
    (claude, "sandbox/sandbox-text-1", "Read", "anthropic.messages", "A river has two banks."),
    (claude, "anthropic/claude-haiku-5-5", "Read", "anthropic.messages", "A river has two banks."),
    (codex, "sandbox/sandbox-text-1", "exec_command", "openai.responses", "exec_command: Chunk ID"),
    # A custom tool, of a namespace: the input is a program.
    (codex, "openai/gpt-6-luna", "exec", "openai.responses", "vendor is not defined"),
):
    before = {one["uuid"] for one in get("/v1/generate/history?per_page=20")["data"]}
    answer = agent(model, tool)
    assert said in answer, answer
    check_bills(surface, before)
    ran += 1
print(f"{ran} runs of agents passed")
