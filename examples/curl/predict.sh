#!/usr/bin/env bash
# One prediction in every form that the server takes. Needs curl and a server with the model `digits` (see ../digits).
# SAGGAR_HOST names another server, SAGGAR_API_KEY the key where it asks for one.
set -euo pipefail
cd "$(dirname "$0")"

host=${SAGGAR_HOST:-http://127.0.0.1:5000}
seven=../digits/held-out/7.png
options=(--silent --show-error --fail-with-body)
[[ -z ${SAGGAR_API_KEY:-} ]] || options+=(-H "authorization: Bearer $SAGGAR_API_KEY")

ask() { # WHAT CURL-ARGUMENTS...: says what is shown, and shows it
    printf '\n# %s\n' "$1"
    curl "${options[@]}" "${@:2}"
    echo
}

ask 'JSON: one item, by the name of the input' "$host/models/digits/predict" \
    -H 'content-type: application/json' \
    -d '{"image": [[0,0,0,0,255,255,0,0], [0,0,0,255,255,0,0,0], [0,0,255,255,0,0,0,0], [0,255,255,0,0,0,0,0],
                   [0,255,255,255,255,255,0,0], [0,255,255,0,0,255,255,0], [0,0,255,255,255,255,255,0],
                   [0,0,0,255,255,255,0,0]]}'

ask 'Multipart: a file, as a browser would send it' "$host/models/digits/predict" -F "image=@$seven"

ask 'A picture as the whole body' "$host/models/digits/predict" -H 'content-type: image/png' --data-binary "@$seven"

ask 'Raw bytes: the 64 pixels row by row, here all black' "$host/models/digits/predict" \
    -H 'content-type: application/octet-stream' --data-binary @<(head -c 64 /dev/zero)

version=$(curl "${options[@]}" "$host/models/digits/predict" -F "image=@$seven" --output /dev/null --write-out '%header{x-saggar-model}')
ask "A certain version: $version" "$host/models/$version/predict" -F "image=@$seven"

ask 'The default model, in at most 500 ms' "$host/predict" -H 'x-saggar-deadline-ms: 500' -F "image=@$seven"

ask 'Server-sent events: pieces as they come, and the whole answer as the last' "$host/models/digits/predict" \
    --no-buffer -H 'accept: text/event-stream' -F "image=@$seven"

ask 'Which version answered, where, and how long each part took' "$host/models/digits/predict" \
    -F "image=@$seven" --output /dev/null --dump-header -
