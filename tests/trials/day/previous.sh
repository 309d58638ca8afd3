#!/usr/bin/env bash
# Builds the program of the previous release, whose commit tests/trials/day/previous names, to
# $CARGO_TARGET_DIR/previous, once, and prints where it is.
set -euo pipefail
cd "$(dirname "$0")/../../.."
commit=$(cat tests/trials/day/previous)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/previous
program=$target/debug/gensvc
if [ "$(cat "$target/commit" 2>/dev/null)" != "$commit" ] || [ ! -x "$program" ]; then
    git cat-file -e "$commit^{commit}" 2>/dev/null || {
        echo "The previous release, commit $commit, is not in this clone: git fetch --unshallow" >&2
        exit 1
    }
    echo "Building the previous release, once: as long as a first build." >&2
    rm -rf "$target/source" "$target/commit"
    mkdir -p "$target/source"
    git archive "$commit" | tar -x -C "$target/source"
    SQLX_OFFLINE=true CARGO_TARGET_DIR=$target \
        cargo build --locked --quiet --manifest-path "$target/source/Cargo.toml" >&2
    echo "$commit" >"$target/commit"
fi
echo "$program"
