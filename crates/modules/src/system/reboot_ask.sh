# shellcheck shell=sh disable=SC2154
sh -c "$arg_command"
