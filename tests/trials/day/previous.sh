#!/usr/bin/env bash
# Builds the program of the previous release, whose commit tests/trials/day/previous names, as
# $CARGO_TARGET_DIR/previous/gensvc, once, and prints where it is. Keeps no other file of the build.
set -euo pipefail
cd "$(dirname "$0")/../../.."
commit=$(cat tests/trials/day/previous)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/previous
program=$target/gensvc
if [ "$(cat "$target/commit" 2>/dev/null)" != "$commit" ] || [ ! -x "$program" ]; then
    git cat-file -e "$commit^{commit}" 2>/dev/null || {
        echo "The previous release, commit $commit, is not in this clone: git fetch --unshallow" >&2
        exit 1
    }
    echo "Building the previous release, once: as long as a first build." >&2
    rm -rf "$target"
    mkdir -p "$target/source"
    git archive "$commit" | tar -x -C "$target/source"
    SQLX_OFFLINE=true CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false \
        cargo build --locked --quiet --manifest-path "$target/source/Cargo.toml" >&2
    mv "$target/debug/gensvc" "$program"
    rm -rf "$target/source" "$target/debug"
    echo "$commit" >"$target/commit"
fi
echo "$program"
