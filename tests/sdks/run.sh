#!/bin/sh
# Runs the unchanged packages of OpenAI and Anthropic, the AI SDK and LangChain, the examples of
# docs/sdks.md, Claude Code and Codex: make sdks. The server is a separate one, with the sandbox and with a stand-in for the
# vendors; its private Postgres, data folder and ports are its own, and all of it is stopped on exit.
set -eu
cd "$(dirname "$0")/../.."

packages='pip==26.3 openai==3.57.0 anthropic==2.13.0 langchain-openai==1.7.4 langchain-core==1.8.3'
modules='openai@7.57.0 @anthropic-ai/sdk@1.13.0 ai@7.0.173 @ai-sdk/openai@4.0.118
	@ai-sdk/anthropic@4.0.105 @ai-sdk/openai-compatible@3.0.92 @langchain/openai@1.6.0
	@langchain/core@1.4.0 zod@4.6.7'
# Programs with libraries of their own, which must not meet those above.
agents='@anthropic-ai/claude-code@2.1.331 @openai/codex@0.169.0'
work=$(realpath "${CARGO_TARGET_DIR:-target}")/sdks
gensvc=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/gensvc

mkdir -p "$work/node"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$packages" ]; then
	echo 'Installing packages of the Python registry under target/, once.'
	rm -rf "$work/venv"
	python3 -m venv "$work/venv"
	for package in $packages; do
		# The newer pip resolves the rest.
		case $package in pip=*) "$work/venv/bin/pip" install --quiet "$package" ;; esac
	done
	# shellcheck disable=SC2086
	"$work/venv/bin/pip" install --quiet $packages
	echo "$packages" >"$work/installed"
fi
if [ "$(cat "$work/node/installed" 2>/dev/null)" != "$modules" ]; then
	echo 'Installing packages of the npm registry under target/, once.'
	rm -rf "$work/node"
	mkdir "$work/node"
	echo '{"private": true}' >"$work/node/package.json"
	# shellcheck disable=SC2086
	npm install --prefix "$work/node" --silent --no-audit --no-fund $modules
	echo "$modules" >"$work/node/installed"
fi
if [ "$(cat "$work/agents/installed" 2>/dev/null)" != "$agents" ]; then
	echo 'Installing agents of the npm registry under target/, once.'
	rm -rf "$work/agents"
	mkdir "$work/agents"
	echo '{"private": true}' >"$work/agents/package.json"
	# shellcheck disable=SC2086
	npm install --prefix "$work/agents" --silent --no-audit --no-fund --engine-strict=false $agents
	echo "$agents" >"$work/agents/installed"
fi
python="$work/venv/bin/python"

# The providers' own keys would make real calls.
unset DATABASE_URL STABILITY_API_KEY RUNWAYML_API_SECRET ELEVENLABS_API_KEY OPENAI_BASE_URL \
	OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL GEMINI_API_KEY
export GENSVC_DATA_DIR="$work/data" GENSVC_LOG="${GENSVC_LOG:-warn}"
npm=
server=
upstream=
stop() {
	for process in $npm $server $upstream; do
		kill "$process" 2>/dev/null && wait "$process" || true
	done
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
free_port() {
	"$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
SDKS_KEY=$(key rich 1000) SDKS_POOR_KEY=$(key poor 0) npm_key=$(key npm 1000)
port=$(free_port) vendors=$(free_port) metrics=$(free_port)
SDKS_URL=http://127.0.0.1:$port SDKS_UPSTREAM=http://127.0.0.1:$vendors
SDKS_MODELS='sandbox/sandbox-text-1 openai/gpt-6-luna anthropic/claude-haiku-5-5
	gemini/gemini-3.5-flash-lite'
export SDKS_KEY SDKS_POOR_KEY SDKS_URL SDKS_UPSTREAM SDKS_MODELS

"$python" tests/sdks/upstream.py "$vendors" >"$work/upstream.log" 2>&1 &
upstream=$!
OPENAI_API_KEY=none OPENAI_BASE_URL=$SDKS_UPSTREAM/openai/v1 ANTHROPIC_API_KEY=none \
	ANTHROPIC_BASE_URL=$SDKS_UPSTREAM/anthropic GEMINI_API_KEY=none \
	GOOGLE_GEMINI_BASE_URL=$SDKS_UPSTREAM/gemini GENSVC__SUBMISSIONS__RETRY_BASE_MS=1 \
	GENSVC__METRICS__PORT=$metrics GENSVC_BIND=127.0.0.1:$port \
	"$gensvc" serve >"$work/server.log" 2>&1 &
server=$!
# Node looks for modules next to the file.
cp tests/sdks/*.mjs "$work/node/"
"$python" tests/sdks/chat.py
"$python" tests/sdks/tools.py
"$python" tests/sdks/images.py
node "$work/node/chat.mjs"
node "$work/node/images.mjs"
# Mostly they wait, for their own time-outs.
SDKS_KEY=$npm_key node --no-warnings "$work/node/crossings.mjs" &
npm=$!
"$python" tests/sdks/crossings.py
"$python" tests/sdks/langchain.py
"$python" tests/sdks/documented.py "$work/node"
rm -rf "$work/agents-work"
"$python" tests/sdks/agents.py "$work/agents" "$work/agents-work"
wait "$npm"
npm=
"$gensvc" ledger verify
