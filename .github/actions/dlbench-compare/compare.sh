#!/usr/bin/env bash
# Calls `dlbench compare` for action.yml, which hands its inputs over as variables, so that none of
# their text is run. An inconclusive comparison is a warning unless it is asked to fail.
set -uo pipefail

root=$GITHUB_ACTION_PATH/../../..
read -ra overrides <<<"$OVERRIDES"
read -ra thresholds <<<"$THRESHOLDS"
words=("$A" "$B" "${overrides[@]}" --out "$OUT" --json "$OUT.json" --markdown "$OUT.md")
for threshold in "${thresholds[@]}"; do words+=(--threshold "$threshold"); done
[ -z "$AS" ] || words+=(--as "$AS")
[ -z "$SUITE" ] || words+=(--suite "$SUITE")
[ -z "$RULES" ] || words+=(--rules "$RULES")
[ -z "$CALIBRATION" ] || words+=(--calibration "$CALIBRATION")
[ -z "$INDEX_URL" ] || words+=(--index-url "$INDEX_URL")
[ "$PRE" != true ] || words+=(--pre)

"$root/.venv/bin/dlbench" compare "${words[@]}"
code=$?
case $code in
    0) outcome=fine ;;
    1) outcome=regression ;;
    3) outcome=inconclusive ;;
    4) outcome="not run" ;;
    *) outcome="wrong use" ;;
esac
printf 'outcome=%s\nexit-code=%s\n' "$outcome" "$code" >>"$GITHUB_OUTPUT"
if [ "$code" = 3 ] && [ "$FAIL_ON_INCONCLUSIVE" != true ]; then
    echo "::warning title=dlbench::inconclusive: a regression cannot be excluded; see the job's summary"
    exit 0
fi
exit "$code"
