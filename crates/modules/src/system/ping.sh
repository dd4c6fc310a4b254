# shellcheck shell=sh disable=SC2154
result ping "$arg_data"
