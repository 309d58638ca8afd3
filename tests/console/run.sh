#!/bin/sh
# Drives the console in a real, headless Chromium, with and without JavaScript, and checks each page
# with axe: make test-console, and a part of make test. The server has its own private Postgres, data
# folder and port, and all of it is stopped on exit. With SHOTS=FOLDER screenshots of all pages are
# left there.
set -eu
cd "$(dirname "$0")/../.."

packages='puppeteer-core@24.43.1 axe-core@4.14.1'
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
work=$target/console
gensvc=$target/debug/gensvc

mkdir -p "$work"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$packages" ]; then
	echo "Installing, once, below $work: $packages"
	# shellcheck disable=SC2086
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work" $packages || {
		echo 'The npm registry cannot be reached: the console was not tested.' >&2
		exit 1
	}
	echo "$packages" >"$work/installed"
fi
cp tests/console/*.mjs "$work/"
export CONSOLE_PICTURE="$PWD/docs/console.png"

unset DATABASE_URL OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY STABILITY_API_KEY \
	RUNWAYML_API_SECRET ELEVENLABS_API_KEY GENSVC_API_KEY GENSVC_BASE_URL
export GENSVC_DATA_DIR="$work/data" GENSVC_LOG=warn
server=
stop() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }
	"$gensvc" database stop >/dev/null 2>&1 || true
}
"$gensvc" database stop >/dev/null 2>&1 || true
"$gensvc" database remove --yes >/dev/null 2>&1 || true
rm -rf "$GENSVC_DATA_DIR"
trap 'exit 130' HUP INT TERM
trap stop EXIT
DATABASE_URL=$("$gensvc" database start)
export DATABASE_URL

create() {
	"$gensvc" account create --email "$1@example.com" --name "$2" --password 'a password of tests' \
		--credits 1000 >/dev/null
}
create ann Ann
create bob '<img src=x onerror=globalThis.ran=1>'
create carl Carl
create olga Olga
"$gensvc" user operator --email olga@example.com >/dev/null
GENSVC_LOG=info GENSVC_BIND=127.0.0.1:0 GENSVC__METRICS__PORT=0 GENSVC__METRICS__AUDIT_SECONDS=1 \
	GENSVC__WEBHOOKS__ALLOW_PRIVATE=true "$gensvc" serve >"$work/server.log" 2>&1 &
server=$!
until grep -q 'listening on' "$work/server.log"; do
	kill -0 "$server" 2>/dev/null || { cat "$work/server.log"; exit 1; }
	sleep 0.1
done
CONSOLE_URL=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$work/server.log")
export CONSOLE_URL
node --stack-trace-limit=40 "$work/console.mjs" || { echo "The server's log: $work/server.log"; exit 1; }
"$gensvc" ledger verify
