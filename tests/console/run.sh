#!/bin/sh
# Drives the console in a real, headless Chromium, with and without JavaScript, and checks each page
# with axe: make test-console. The server has its own private Postgres, data folder and port, and all
# of it is stopped on exit. Screenshots are left in target/console/.
set -eu
cd "$(dirname "$0")/../.."

packages='puppeteer-core@24.43.1 axe-core@4.14.1'
work=${CARGO_TARGET_DIR:-target}/console
gensvc=${CARGO_TARGET_DIR:-target}/debug/gensvc

mkdir -p "$work"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$packages" ]; then
	# shellcheck disable=SC2086
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work" $packages
	echo "$packages" >"$work/installed"
fi
cp tests/console/console.mjs "$work/"

unset DATABASE_URL OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY STABILITY_API_KEY \
	RUNWAYML_API_SECRET ELEVENLABS_API_KEY GENSVC_API_KEY GENSVC_BASE_URL
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

for name in ann olga; do
	"$gensvc" account create --email "$name@example.com" --password 'a password of tests' \
		--credits 1000 >/dev/null
done
"$gensvc" user operator --email olga@example.com >/dev/null
port=$(node -e 's = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
GENSVC_BIND=127.0.0.1:$port GENSVC__METRICS__PORT=0 GENSVC__METRICS__AUDIT_SECONDS=1 \
	GENSVC__WEBHOOKS__ALLOW_PRIVATE=true "$gensvc" serve >"$work/server.log" 2>&1 &
server=$!
CONSOLE_URL=http://127.0.0.1:$port node "$work/console.mjs"
"$gensvc" ledger verify
