#!/bin/sh
# Runs the unchanged packages of OpenAI and Anthropic, and the AI SDK, against a separate server
# with the sandbox: make sdks. Without npm, those of Python only. The server has its own private Postgres, data folder and port, and all of it
# is stopped on exit.
set -eu
cd "$(dirname "$0")/../.."

packages='openai==3.51.0 anthropic==2.10.0'
modules='openai@7.57.0 @anthropic-ai/sdk@1.12.0 ai@7.0.173 @ai-sdk/openai@4.0.118
	@ai-sdk/anthropic@4.0.105 @ai-sdk/openai-compatible@3.0.92'
work=${CARGO_TARGET_DIR:-target}/sdks
gensvc=${CARGO_TARGET_DIR:-target}/debug/gensvc

mkdir -p "$work"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$packages" ]; then
	python3 -m venv "$work/venv"
	# shellcheck disable=SC2086
	"$work/venv/bin/pip" install --quiet $packages
	echo "$packages" >"$work/installed"
fi
python="$work/venv/bin/python"
if ! command -v npm >/dev/null; then
	echo 'npm is missing: its packages are not tried.' >&2
	modules=
elif [ "$(cat "$work/node/installed" 2>/dev/null)" != "$modules" ]; then
	rm -rf "$work/node"
	mkdir "$work/node"
	echo '{"private": true}' >"$work/node/package.json"
	# shellcheck disable=SC2086
	npm install --prefix "$work/node" --silent --no-audit --no-fund $modules
	echo "$modules" >"$work/node/installed"
fi

# The providers' own keys would make real calls.
unset DATABASE_URL OPENAI_API_KEY OPENAI_BASE_URL ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN \
	ANTHROPIC_BASE_URL GEMINI_API_KEY STABILITY_API_KEY RUNWAYML_API_SECRET ELEVENLABS_API_KEY
export GENSVC_DATA_DIR="$PWD/$work/data" GENSVC_LOG="${GENSVC_LOG:-warn}"
case $work in /*) GENSVC_DATA_DIR=$work/data ;; esac
server=
stop() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }
	"$gensvc" database stop >/dev/null 2>&1 || true
}
"$gensvc" database stop >/dev/null 2>&1 || true
rm -rf "$GENSVC_DATA_DIR"
trap 'exit 130' HUP INT TERM
trap stop EXIT
DATABASE_URL=$("$gensvc" database start)
export DATABASE_URL

member() { "$python" -c 'import json, sys; print(json.load(sys.stdin)["key"])'; }
# $1: a name, $2: credits.
key() {
	"$gensvc" --json account create --email "$1@example.com" --password 'a password of tests' \
		--credits "$2" >/dev/null
	"$gensvc" --json key create --email "$1@example.com" --name sdks | member
}
SDKS_KEY=$(key rich 1000) SDKS_POOR_KEY=$(key poor 0)
port=$("$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
SDKS_URL=http://127.0.0.1:$port
export SDKS_KEY SDKS_POOR_KEY SDKS_URL

GENSVC_BIND=127.0.0.1:$port "$gensvc" serve >"$work/server.log" 2>&1 &
server=$!
"$python" tests/sdks/chat.py
"$python" tests/sdks/tools.py
"$python" tests/sdks/images.py
if [ "$modules" ]; then
	# Modules are looked for beside the file.
	cp tests/sdks/*.mjs "$work/node/"
	node "$work/node/chat.mjs"
	node "$work/node/images.mjs"
fi
"$gensvc" ledger verify
