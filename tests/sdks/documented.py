"""Runs the Python and JavaScript of docs/sdks.md, block by block, against the server."""

import os
import pathlib
import re
import subprocess
import sys

URL, KEY = os.environ["SDKS_URL"], os.environ["SDKS_KEY"]
page = pathlib.Path("docs/sdks.md").read_text().replace("http://127.0.0.1:8080", URL)
node = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
ran = 0
for language, code in re.findall(r"```(python|js)\n(.*?)```", page, re.DOTALL):
    if language == "python":
        command = [sys.executable, "-c", f"KEY = {KEY!r}\n{code}"]
    elif node:
        # Modules are looked for beside the file.
        file = node / "documented.mjs"
        file.write_text(f"const KEY = {KEY!r};\n{code}")
        command = ["node", str(file)]
    else:
        continue
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        sys.exit(f"docs/sdks.md:\n{code}\n{done.stdout}{done.stderr}")
    ran += 1
print(f"docs/sdks.md: {ran} examples run")
