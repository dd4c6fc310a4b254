# shellcheck shell=sh disable=SC2154
# Removes what is left of the job $arg_id.

find_job
[ -n "$job" ] || exit 0
if is_begun && [ ! -f "$job/code" ] && is_kept; then
	fail "the job $arg_id still runs"
fi
rm -rf -- "$job"
