#!/usr/bin/env bash
# The routing measurements on whole message sets (docs/design/routing.md): bench/routing.sh DATA VECTORS [PYTHON] [ENCODERS].
# DATA is the folder of shared data, VECTORS a file that keeps vectors between runs, ENCODERS the folder of
# `python -m bench.adapter`, for learning from use alone.
set -euo pipefail
data=$(realpath "$1") vectors=$(realpath "$2") python=${3:-python}
routing=$data/routing
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."

measure() {
    local name=$1
    shift
    for scorer in published trigger_mean evidence; do
        echo "== $name, $scorer"
        "$python" -m capd eval route --vectors "$vectors" --no-latency --scorer "$scorer" "$@"
    done
}

tap=(--tap "$data/octomind-tap")
overlays=(--overlays "$here/../taps/overlays/octomind")
names=(--catalogue "$routing/octomind_catalogue.jsonl" --skip-unknown-labels)
clinc=$routing/clinc150.dev.jsonl
metatool=$routing/metatool_queries.dev.jsonl
fixtures=(--catalogue "$routing/octomind_fixture_caps.jsonl" --data "$routing/octomind_fixtures.jsonl")

starter=(--tap "$here/../taps/starter" --overlays "$here/../taps/overlays/starter")
measure "starter (tuned on)" "${starter[@]}" --data "$here/routing/starter.jsonl" \
    --data "$here/routing/starter-second.jsonl" --data "$here/routing/third-starter.jsonl" \
    --data "$here/routing/fourth-starter.jsonl" --data "$here/routing/fifth-starter.jsonl"
measure "public (tuned on)" "${tap[@]}" "${overlays[@]}" --skip-unknown-labels \
    --data "$here/routing/public.jsonl" --data "$here/routing/public-second.jsonl" \
    --data "$here/routing/third-public-a.jsonl" --data "$here/routing/third-public-b.jsonl" \
    --data "$here/routing/fourth-public.jsonl" --data "$here/routing/fifth-public.jsonl"
# Sets that no fit has seen. What looks at them often is fitted to them.
for set in held-back held-back-second held-back-third held-back-siblings; do
    measure "starter, $set" "${starter[@]}" --data "$here/routing/$set-starter.jsonl"
    measure "public, $set" "${tap[@]}" "${overlays[@]}" --skip-unknown-labels \
        --data "$here/routing/$set-public.jsonl"
done
measure "fixtures v2" "${fixtures[@]}" --catalogue-set fixtures --set fixtures_v2
measure "diversity" "${fixtures[@]}" --catalogue-set diversity --set diversity
measure "blind (tuned on)" "${tap[@]}" --data "$routing/blind_routing.tune.jsonl"
measure "blind, overlays (tuned on)" "${tap[@]}" "${overlays[@]}" --data "$routing/blind_routing.tune.jsonl"
measure "blind, overlays without near copies" "${tap[@]}" "${overlays[@]}" --data "$routing/blind_routing.tune.jsonl" \
    --skip-near-copies 0.85
measure "eval 904" "${names[@]}" --data "$routing/octomind_eval_real_904.jsonl"
measure "eval 904, tap" "${tap[@]}" --skip-unknown-labels --data "$routing/octomind_eval_real_904.jsonl"
measure "eval 904, source trigger removed" "${names[@]}" --data "$routing/octomind_eval_real_904.jsonl" --drop-src-trigger
measure "clinc150" --triggers-from "$clinc" --data "$clinc" --split tune --part test
measure "metatool" --catalogue "$routing/metatool_tools.jsonl" --triggers-from "$metatool" \
    --data "$metatool" --data "$routing/metatool_negatives.tune.jsonl" --split tune --part test

# The same sets with weights fitted to their own tune parts alone.
for set in clinc150 metatool; do
    profile=$(mktemp)
    "$python" -m bench.routing_tuning --sets "$here/routing-tuning-$set.toml" --root "$data" \
        --out "$profile" --vectors "$vectors" >/dev/null
    echo "== $set, evidence, calibrated on its own tune part"
    case $set in
        clinc150) rows=(--triggers-from "$clinc" --data "$clinc") ;;
        metatool) rows=(--catalogue "$routing/metatool_tools.jsonl" --triggers-from "$metatool"
            --data "$metatool" --data "$routing/metatool_negatives.tune.jsonl") ;;
    esac
    "$python" -m capd eval route --vectors "$vectors" --no-latency --profile "$profile" \
        "${rows[@]}" --split tune --part test
    rm -f "$profile"
done

# Near ties, missing keys and follow-ups; other languages; learning from use; time.
"$python" -m bench.routing_cases "$data" "$vectors"
"$python" -m bench.routing_languages "$vectors"
"$python" -m bench.routing_learning "$data" "$vectors" ${4:+--encoders "$4"}
"$python" -m bench.routing_latency "$vectors"
