# shellcheck shell=sh disable=SC2154
# Removes what is left of the run $arg_run.
rm -rf "${HOME:-/nonexistent}/.etcdrun/runs/$arg_run" "/var/tmp/etcdrun-runs-$(id -u)/$arg_run"
