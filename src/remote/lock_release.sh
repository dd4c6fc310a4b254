# shellcheck shell=sh disable=SC2154
# Releases all locks that the run $arg_run holds. With arg_break the generation goes up first, so that a
# runner that still has the old one does nothing more. With arg_forget its ledger goes too, in the same exec.

count=0
for lock in "$place"/*.lock "$place"/*.shared/"$arg_run"; do
	read_lock "$lock" || continue
	[ "$run" = "$arg_run" ] || continue
	name=${lock##*/}
	name=${name%.lock}
	if [ "$arg_break" ] && [ "$lock" = "$place/$name.lock" ]; then
		read_generation "$name"
		write_whole "$place/$name.generation" "$((generation + 1))"
	fi
	rm -f "$lock"
	count=$((count + 1))
	result owner "$owner"
done
result_int released "$count"
[ "$count" = 0 ] || changed
[ -z "$arg_forget" ] || rm -rf "${HOME:-/nonexistent}/.etcdrun/runs/$arg_run" "/var/tmp/etcdrun-runs-$(id -u)/$arg_run"
