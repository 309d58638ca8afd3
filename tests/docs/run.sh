#!/usr/bin/env bash
# Runs the examples of the documentation against a new server: make check-docs
#
# Each page runs in a shell of its own, its ```sh blocks one after the other, as they are written:
# only the ports and the key are those of this server, and a second server has the port after it.
# What is not to be run is ```sh skip; a block whose last request must be refused is ```sh fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

programs=$(realpath "${CARGO_TARGET_DIR:-target}/debug")
work=$(mktemp -d)
# The private Postgres may run as another user.
chmod 755 "$work"
echo fail-with-body >"$work/.curlrc"

clean() { (cd "$work" && env -i PATH="$programs:$PATH" HOME="$work" LANG=C.UTF-8 "$@"); }
server=
finish() {
	[ -z "$server" ] || { kill "$server" && wait "$server"; } || true
	for data in data restored/data try; do
		clean GENSVC_DATA_DIR="$work/$data" gensvc database stop || true
		clean GENSVC_DATA_DIR="$work/$data" gensvc database remove --yes || true
	done >/dev/null 2>&1
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

cd "$work"
env -i PATH="$programs:$PATH" GENSVC_BIND=127.0.0.1:0 GENSVC__METRICS__PORT=0 \
	GENSVC__WEBHOOKS__ALLOW_PRIVATE=true gensvc serve >out 2>log &
server=$!
cd - >/dev/null
until grep -q 'listening on' "$work/log"; do
	kill -0 $server 2>/dev/null || { cat "$work/log"; exit 1; }
	sleep 0.1
done
url=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$work/log")
metrics=$(grep -o 'http://[^" ]*/metrics' "$work/log")
key=$(sed -n 's/^ *key *\(svc_.*\)/\1/p' "$work/out")

# The page on stdin as a script. $1: its name.
script() {
	awk -v page="$1" '
		/^ *```sh( fails)?$/ {
			inside = 1
			refused = /fails/
			# An answer before it may end without a line break.
			printf "echo; echo \"== %s, line %d\"\n", page, NR
			if (refused) print "if ("
			next
		}
		inside && /^ *```$/ {
			inside = 0
			if (refused) print "); then echo \"It was not refused.\"; exit 1; fi"
			next
		}
		inside
	' | sed -e "s|http://127.0.0.1:8080|$url|; s|http://127.0.0.1:9321/metrics|$metrics|" \
		-e "s|127.0.0.1:8081|127.0.0.1:$((${url##*:} + 1))|" \
		-e "s|^KEY=svc_\.\.\.\$|KEY=$key|"
}

for page in README.md docs/*.md docs/operate/*.md docs/sdks/*.md; do
	script "$page" <"$page" >"$work/script"
	if ! clean timeout 300 bash -euo pipefail script >"$work/output" 2>&1; then
		cat "$work/output"
		echo "The examples of $page failed at the last line named."
		exit 1
	fi
	echo "$page: $(grep -c '^== ' "$work/output" || true) examples run"
done
