#!/usr/bin/env bash
# The main job, end to end: serve, push real data, train as a job, see the model swapped in, predict over HTTP.
# Needs what `make build` makes. KEEP=1 leaves the server running. Everything lies in a directory of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."

saggar=${SAGGAR_BIN:-$PWD/target/release/saggar}
digit=examples/digits/held-out/7.png
keep=${KEEP:-0}
addr=${SAGGAR_ADDR:-127.0.0.1:5000}
state=$(mktemp -d "${TMPDIR:-/tmp}/saggar-demo.XXXXXX")
export SAGGAR_HOST=http://$addr
server=

finish() {
    local code=$?
    if [[ -n $server && ($keep != 1 || $code -ne 0) ]]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    if ((code != 0)); then
        echo "demo: failed; the server's last lines:" >&2
        tail -n 20 "$state/server.log" >&2 || true
    fi
    [[ $keep == 1 && $code -eq 0 ]] || rm -rf "$state"
    exit "$code"
}
trap finish EXIT

step() { printf '\n== %s\n' "$*"; }

step "saggar serve --addr $addr"
"$saggar" serve --addr "$addr" --home "$state/home" >"$state/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    kill -0 "$server" 2>/dev/null || exit 1
    "$saggar" --quiet models ls >/dev/null 2>&1 && break
    sleep 0.1
done
"$saggar" --quiet models ls >/dev/null
echo "serving on http://$addr"

step "saggar data push examples/digits --name digits"
"$saggar" data push examples/digits --name digits

step "saggar run lenet --data digits -f"
"$saggar" run lenet --project digits --data digits --seed 7 -f

step "saggar models ls: the server has swapped the new version in"
for _ in $(seq 200); do
    serving=$("$saggar" models show digits 2>/dev/null) && [[ $serving == *serving* ]] && break
    sleep 0.1
done
"$saggar" models ls

step "saggar predict digits -i image=@$digit"
"$saggar" predict digits -i "image=@$digit" --show --top-k 3

if [[ $keep == 1 ]]; then
    step "still serving on http://$addr (process $server, state in $state)"
    echo "  curl -F image=@$digit http://$addr/predict"
    echo "  curl http://$addr/metrics"
    echo "  saggar ps -a; saggar logs digits-1; kill $server"
    disown "$server"
fi
